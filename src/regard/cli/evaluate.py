"""Commands that read parallel text with a model: evaluate, shortlist, heads, align."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

from rich.table import Table
from typer import Option

from regard.align import Alignment, pair_weights
from regard.align import align as run_align
from regard.align.heads import RankedHeads, load_heads, save_heads
from regard.align.links import Gold, as_pharaoh, read_gold
from regard.checkpoint.weights import load_model
from regard.cli.options import AnyModel, Beam, Device, Json, Limit, Model, Out, Precision, Reverse, SetDecode
from regard.cli.translate import Shortlist, decode_settings, device_for
from regard.config import DecodeSettings, choose
from regard.data.files import MAX_LINE_BYTES, read_lines
from regard.data.formats import read_pairs
from regard.data.normalise import Pair
from regard.pipeline import load_translator
from regard.pipeline.shortlist import learn_shortlist
from regard.pipeline.translator import Translator
from regard.plot.style import check_figure, save_and_report
from regard.plot.tables import head_table
from regard.score import Scores, SystemScore, compare, score, score_sentences
from regard.terminal import (
    QUIET,
    escape,
    message,
    open_output,
    print_json,
    print_tables,
    progress_bar,
    to_json,
    to_json_line,
)
from regard.trace.head_report import ORDERS, report_heads
from regard.zoo import find_model, pick, present

REFERENCE = "Further references: a file with a line for each sentence. May be repeated."
AGAINST = "Another system to compare with: a file of its outputs, or a model. May be repeated."
RESAMPLES = "Resampled test sets for intervals and comparisons; 0 leaves them out."
OUTPUTS = "Keep the outputs here, line by line; as .jsonl with sources, references and scores of each sentence."
DATA = "Parallel text, ideally what the model was trained on. May be repeated."
LIMIT = "Read at most this many sentence pairs; 100,000 short ones take six seconds and 0.7 GiB."
FREQUENT = "Always allow this many of the most frequent target tokens."
DEFAULT_LANGUAGES = ("zh", "en")  # of a format that names them, where no model does
SORT = f"Sort heads by one of: {', '.join(ORDERS)}."
BLEU = "Also translate without each head in turn, which is slow."
REVERSE = "Model of the opposite direction, or none; a bundled model comes with its own."
GOLD = "Gold links (i-j sure, i?j possible): heads are chosen by them, and the alignment error rate is reported."
HEADS = "Heads as cross:LAYER:HEAD, separated by a comma from those of the reverse model; or measured, on this text."
UNITS = "Words: characters (at spaces, Chinese by character), pieces (Chinese by token) or tokenised (at spaces)."
SYMMETRISE = "How both directions are combined: intersection, union, grow-diag or grow-diag-final-and."
LINKS = "Write the links to this file instead of stdout; .png, .svg and .pdf draw one pair."
FIGURES = {".png", ".svg", ".pdf"}


def evaluate(
    data: Annotated[list[str], Option(help="Parallel text: sources and references.")],
    model: Model,
    reference: Annotated[list[str] | None, Option(help=REFERENCE)] = None,
    against: Annotated[list[str] | None, Option(help=AGAINST)] = None,
    resamples: Annotated[int, Option(min=0, help=RESAMPLES)] = 1000,
    out: Annotated[Path | None, Option("--out", "-o", help=OUTPUTS)] = None,
    set_: SetDecode = None,
    beam: Beam = None,
    precision: Precision = "float32",
    device: Device = "auto",
    shortlist: Shortlist = None,
    reverse: Reverse = False,
    json_: Json = False,
) -> None:
    if against and not resamples:
        raise ValueError("--against compares by resampling, got --resamples 0: leave one out")
    if out is not None and not out.parent.is_dir():
        raise ValueError(f"the folder for {out.name!r} does not exist: {out.parent}")
    translator = load_translator(model, precision, device_for(device, shortlist), shortlist)
    pairs = read_sides(data, (translator.src_lang, translator.tgt_lang), reverse)
    sources, references = [src for src, _ in pairs], read_references(reference, [tgt for _, tgt in pairs])
    others = {each: other_system(each, len(sources), device) for each in against or ()}
    outputs = translate_all(translator, sources, decode_settings(translator.settings, beam, None, set_))
    if out is not None:
        with open_output(out) as write:
            for line in output_lines(sources, outputs, references, translator.tgt_lang, out):
                write(line)
    scores = score(outputs, references[0], translator.tgt_lang, others=references[1:])
    systems = {model: outputs} | {name: translated_by(system, sources) for name, system in others.items()}
    compared = compare(systems, references, translator.tgt_lang, resamples) if resamples else []
    if json_:
        return print_json({**to_json(scores), "systems": compared})
    print_tables(scores_table(scores, compared), *([systems_table(compared)] if against else []))


def shortlist(
    data: Annotated[list[str], Option(help=DATA)],
    out: Annotated[Path, Option("--out", "-o", help="File to write, such as zh-en.shortlist.")],
    model: Model,
    frequent: Annotated[int, Option(min=0, help=FREQUENT)] = 500,
    each: Annotated[int, Option(min=1, help="Target tokens allowed per source token.")] = 50,
    limit: Annotated[int, Option(min=1, help=LIMIT)] = 200_000,
    reverse: Reverse = False,
) -> None:
    if not out.parent.is_dir():
        raise ValueError(f"the folder for {out.name!r} does not exist: {out.parent}")
    checkpoint = load_model(find_model(model))
    languages = (checkpoint.settings.data.src_lang, checkpoint.settings.data.tgt_lang)
    pairs = read_sides(data, languages, reverse, limit)
    learned = learn_shortlist(checkpoint.tokenizer, pairs, frequent, each)
    learned.save(out)
    known = f"{int((learned.table[:, 0] >= 0).sum()):,} source tokens, learned from {len(pairs):,} pairs"
    message(f"[dim]shortlist of {known}, saved as[/] {escape(str(out))}")


def heads(
    data: Annotated[list[str], Option(help="Parallel text on which heads are measured.")],
    model: AnyModel = None,
    limit: Limit = 200,
    bleu: Annotated[bool, Option("--bleu", help=BLEU)] = False,
    sort: Annotated[str, Option(help=SORT)] = "loss",
    reverse: Reverse = False,
    device: Device = "auto",
    out: Out = None,
    json_: Json = False,
) -> None:
    check_figure(out)
    choose(dict.fromkeys(ORDERS), sort, "order of heads")
    _, translator, pairs = read_with_model(model, data, device, reverse, limit)
    report = report_heads(translator, pairs, bleu, progress_bar)
    if report.n_unread:
        message(f"[yellow]pairs skipped, as a side is empty or longer than the model reads: {report.n_unread}[/]")
    if out is not None:
        from regard.plot.head_values import report_figure

        save_and_report(report_figure(report), out)
    print_json(report.ranked(sort)) if json_ else print_tables(head_table(report, sort))


def align(
    data: Annotated[list[str], Option(help="Parallel text: sentences and their translations.")],
    model: AnyModel = None,
    reverse_model: Annotated[str | None, Option(help=REVERSE)] = None,
    gold: Annotated[str | None, Option(help=GOLD)] = None,
    heads: Annotated[str | None, Option(help=HEADS, show_default="those stored with the model")] = None,
    units: Annotated[str, Option(help=UNITS)] = "characters",
    symmetrise: Annotated[str, Option(help=SYMMETRISE)] = "grow-diag-final-and",
    out: Annotated[Path | None, Option("--out", "-o", help=LINKS)] = None,
    pair: Annotated[int, Option(min=1, help="The pair to draw, counted from 1.")] = 1,
    keep: Annotated[bool, Option("--keep", help="Store the chosen heads with the models.")] = False,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    figure = out if out is not None and out.suffix.lower() in FIGURES else None
    check_figure(figure)
    name, translator, pairs = read_with_model(model, data, device)
    models = [name, *reverse_names(reverse_model, name, translator)]
    reverse = load_translator(models[1], device=device) if len(models) == 2 else None
    links = None if gold is None else read_gold(read_lines(gold), gold)
    named = heads_to_use(heads, models, gold is not None)
    result = run_align(translator, pairs, reverse, links, named, units, symmetrise, progress_bar)
    report_alignment(result, models, heads is None)
    if keep:
        store_heads(result, models, data)
    if figure is not None:
        from regard.plot.words import draw_alignment

        index = pair_index(pair, result)
        chosen = [each.heads for each in (result.forward, result.backward) if each is not None]
        weights = pair_weights(translator, pairs[index], reverse, chosen, units)
        drawn, known = result.pairs[index], Gold(frozenset(), frozenset()) if links is None else links[index]
        sides = weights.numpy(), drawn.src, drawn.tgt
        save_and_report(draw_alignment(*sides, drawn.links, sorted(known.sure), sorted(known.possible)), figure)
    if json_:
        print_json(result)
    if not json_ or out != figure:
        with open_output(None if out == figure else out) as write:
            for each in result.pairs:
                write(as_pharaoh(each.links))


def read_sides(
    data: list[str], languages: tuple[str, str], reverse: bool = False, limit: int | None = None
) -> list[tuple[str, str]]:
    """Read pairs of (source, target); with `reverse` the text's second side is the source."""
    turn = -1 if reverse else 1
    pairs = islice(read_pairs(data, *languages[::turn]), limit)
    return [(pair.tgt, pair.src) if reverse else (pair.src, pair.tgt) for pair in _readable_pairs(pairs)]


def _readable_pairs(pairs: Iterable[Pair]) -> Iterator[Pair]:
    for pair in pairs:
        if pair.overlong:
            message(f"[dim]{escape(pair.where)}: left out, since a line must be shorter than {MAX_LINE_BYTES} bytes[/]")
        else:
            yield pair


def read_with_model(
    model: str | None, data: list[str], device: str, reverse: bool = False, limit: int | None = None
) -> tuple[str, Translator, list[tuple[str, str]]]:
    """Open a model, or the bundled one for the text's language; return its name, the model and the pairs."""
    if model is not None:
        translator = load_translator(model, device=device)
        return model, translator, read_sides(data, (translator.src_lang, translator.tgt_lang), reverse, limit)
    pairs = read_sides(data, DEFAULT_LANGUAGES, reverse, limit)
    name = pick(None, None, [src for src, _ in pairs[:100]])
    message(f"[dim]reading with the bundled model {name}[/]")
    return name, load_translator(name, device=device), pairs


def translate_all(translator: Translator, sources: list[str], decode: DecodeSettings) -> list[str]:
    """Translate behind a progress bar."""
    translations = progress_bar(translator.stream(sources, decode), len(sources), "translating")
    return [each.text for each in translations]


def score_translations(translator: Translator, data: list[str], reverse: bool, decode: DecodeSettings) -> Scores:
    """Translate one side of parallel text, and score it against the other."""
    pairs = read_sides(data, (translator.src_lang, translator.tgt_lang), reverse)
    outputs = translate_all(translator, [src for src, _ in pairs], decode)
    return score(outputs, [tgt for _, tgt in pairs], translator.tgt_lang)


def other_system(name: str, n: int, device: str) -> list[str] | Translator:
    """Return what a system is compared by: the outputs in a file, or a model."""
    return read_outputs(name, n) if Path(name).is_file() else load_translator(name, device=device)


def translated_by(system: list[str] | Translator, sources: list[str]) -> list[str]:
    """Return a system's outputs."""
    return translate_all(system, sources, system.settings) if isinstance(system, Translator) else system


def read_references(files: list[str] | None, first: list[str]) -> list[list[str]]:
    """Return the references of the text, and further ones, which have a line for each sentence."""
    return [first, *(read_outputs(file, len(first)) for file in files or ())]


def read_outputs(file: str, n: int) -> list[str]:
    """Read a line for each of n sentences."""
    lines = list(read_lines(file))
    if len(lines) != n:
        raise ValueError(f"{file}: there must be a line for each of the {n:,} sentences, got {len(lines):,}")
    return lines


def output_lines(
    sources: list[str], outputs: list[str], references: list[list[str]], tgt_lang: str, out: Path
) -> Iterator[str]:
    """Yield the outputs line by line; for a .jsonl file with their sources, references and scores."""
    if out.suffix.lower() != ".jsonl":
        yield from (" ".join(text.split()) for text in outputs)
        return
    rows = zip(sources, outputs, *references, strict=True)
    for (source, output, *known), found in zip(rows, score_sentences(outputs, references, tgt_lang), strict=True):
        yield to_json_line({"source": source, "output": output, "references": known, **to_json(found)})


def scores_table(scores: Scores, compared: list[SystemScore]) -> Table:
    """List scores with their signatures, and with their intervals where there are any."""
    table = Table(title=f"{scores.n:,} sentences", **QUIET)
    for column in ("score", "value", *(["95 % interval"] if compared else []), "signature"):
        table.add_column(column, justify="right" if column == "value" else "left")
    intervals = [(compared[0].bleu_interval, compared[0].chrf_interval)] if compared else []
    of_bleu, of_chrf = ([_interval(each[i]) for each in intervals] for i in (0, 1))
    table.add_row("BLEU", f"{scores.bleu:.2f}", *of_bleu, scores.bleu_signature)
    table.add_row("chrF", f"{scores.chrf:.2f}", *of_chrf, scores.chrf_signature)
    return table


def systems_table(compared: list[SystemScore]) -> Table:
    """List systems with intervals and the significance of their difference from the first."""
    table = Table(
        title="Against the first system",
        caption="p: paired bootstrap, the chance of such a difference between equal systems",
        **QUIET,
    )
    for column in ("system", "BLEU", "95 % interval", "p", "chrF", "95 % interval", "p"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for each in compared:
        ps = ["–" if p is None else f"{p:.3f}" for p in (each.bleu_p, each.chrf_p)]
        of_bleu = f"{each.bleu:.2f}", _interval(each.bleu_interval), ps[0]
        table.add_row(each.name, *of_bleu, f"{each.chrf:.2f}", _interval(each.chrf_interval), ps[1])
    return table


def _interval(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.2f} … {ends[1]:.2f}"


def reverse_names(asked: str | None, name: str, translator: Translator) -> list[str]:
    """Return the model of the opposite direction, if any: as asked, or the bundled one of a bundled model."""
    if asked is not None:
        return [] if asked == "none" else [asked]
    directions = {each: (bundled.src_lang, bundled.tgt_lang) for each, bundled in present().items()}
    opposite = translator.tgt_lang, translator.src_lang
    return [each for each, direction in directions.items() if name in directions and direction == opposite][:1]


def heads_to_use(heads: str | None, models: list[str], gold: bool) -> list[str]:
    """Return the names of heads that need not be measured: those given or, without gold links, those stored."""
    if heads == "measured" or (heads is None and gold):
        return []
    if heads is not None:
        return heads.split(",")
    return [load_heads(find_model(model)) or "" for model in models]


def report_alignment(result: Alignment, models: list[str], stored: bool) -> None:
    """Say which heads were used and why, and how good the links are."""
    for name, chosen in zip(models, (result.forward, result.backward), strict=False):
        if chosen is not None:
            message(escape(f"{name}: {chosen.heads}, {_reason(chosen, stored)}"))
    if result.n_unread:
        message(f"[yellow]pairs without links, as a side is empty or longer than a model reads: {result.n_unread}[/]")
    if result.score is not None:
        rates = result.score.aer, result.score.precision, result.score.recall
        shares = zip(("alignment error rate", "precision", "recall"), rates, strict=True)
        message(", ".join(f"{what} {share:.1%}" for what, share in shares) + f" on {result.score.n:,} pairs")


def _reason(chosen: RankedHeads, stored: bool) -> str:
    if not chosen.rated:
        return "as stored with the model" if stored else chosen.by
    last = max(int(layer) for _, layer, *_ in (each.heads.split(":") for each in chosen.rated) if layer != "all")
    others = {"mean of all heads": "cross:all:all:say", "first head of the last layer": f"cross:{last}:0:say"}
    values = {what: chosen.value(heads) for what, heads in others.items()}
    compared = ", ".join(f"{what} {value:.3f}" for what, value in values.items() if value is not None)
    best = chosen.value(chosen.heads)
    return f"by {chosen.by} on {chosen.n_pairs:,} pairs: {best:.3f}" + f" ({compared})" * bool(compared)


def store_heads(result: Alignment, models: list[str], data: list[str]) -> None:
    """Store the chosen heads in the models' folders."""
    on = ", ".join(f"{Path(each).parent.name}/{Path(each).name}" for each in data)
    for name, chosen in zip(models, (result.forward, result.backward), strict=False):
        if chosen is not None:
            message(f"[dim]heads stored in[/] {escape(str(save_heads(find_model(name), chosen, on)))}")


def pair_index(pair: int, result: Alignment) -> int:
    """Return the index of the pair to draw."""
    if pair > len(result.pairs):
        raise ValueError(f"--pair must be one of the {len(result.pairs)} pairs, got {pair}")
    return pair - 1
