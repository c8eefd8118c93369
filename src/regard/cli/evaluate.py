"""Commands that read parallel text with a model: evaluate, shortlist."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from typer import Option

from regard.checkpoint import CONFIG, load_tokenizer, model_folder, read_settings
from regard.cli.options import AutoPrecision, Beam, Device, Json, Model, Reverse, SetDecode
from regard.cli.translate import GlossaryFile, Shortlist, decode_settings, device_for
from regard.config import DecodeSettings
from regard.data.files import MAX_LINE_BYTES, read_lines
from regard.data.formats import read_pairs
from regard.data.normalise import Pair
from regard.extras import is_installed, missing, require
from regard.pipeline import load_translator
from regard.pipeline.glossary import Glossary
from regard.pipeline.shortlist_learning import learn_shortlist, save_shortlist
from regard.pipeline.translator import Translator
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
from regard.zoo import find_model, pick

if TYPE_CHECKING:
    from regard.score import Scores, SystemScore

REFERENCE = "Further references: a file with a line for each sentence. May be repeated."
AGAINST = "Another system to compare with: a file of its outputs, or a model. May be repeated."
RESAMPLES = "Resampled test sets for intervals and comparisons; 0 leaves them out."
OUTPUTS = "Keep the outputs here, line by line; as .jsonl with sources, references and scores of each sentence."
DATA = "Parallel text, ideally what the model was trained on. May be repeated."
LIMIT = "Read at most this many sentence pairs; 100,000 short ones take six seconds and 0.7 GiB."
FREQUENT = "Always allow this many of the most frequent target tokens."
DEFAULT_LANGUAGES = ("zh", "en")  # of a format that names them, where no model does


def evaluate(
    data: Annotated[list[str], Option(help="Parallel text: sources and references.")],
    model: Model,
    reference: Annotated[list[str] | None, Option(help=REFERENCE)] = None,
    against: Annotated[list[str] | None, Option(help=AGAINST)] = None,
    resamples: Annotated[int, Option(min=0, help=RESAMPLES)] = 1000,
    out: Annotated[Path | None, Option("--out", "-o", help=OUTPUTS)] = None,
    set_: SetDecode = None,
    beam: Beam = None,
    precision: AutoPrecision = "auto",
    device: Device = "auto",
    shortlist: Shortlist = None,
    glossary: GlossaryFile = None,
    reverse: Reverse = False,
    json_: Json = False,
) -> None:
    if against and not resamples:
        raise ValueError("--against compares by resampling, got --resamples 0: leave one out")
    if against:
        require("sacrebleu", "--against")
    if out is not None and not out.parent.is_dir():
        raise ValueError(f"the folder for {out.name!r} does not exist: {out.parent}")
    translator = load_translator(model, precision, device_for(device, shortlist), shortlist)
    pairs = read_sides(data, (translator.src_lang, translator.tgt_lang), reverse)
    sources, references = [src for src, _ in pairs], read_references(reference, [tgt for _, tgt in pairs])
    others = {each: other_system(each, len(sources), device) for each in against or ()}
    terms = None if glossary is None else Glossary.read(glossary, translator.tokenizer, reverse)
    outputs = translate_all(translator, sources, decode_settings(translator.settings, beam, None, set_), terms)
    if out is not None:
        with open_output(out) as write:
            for line in output_lines(sources, outputs, references, translator.tgt_lang, out):
                write(line)
    if not is_installed("sacrebleu"):
        return report_lengths(measure_lengths(sources, outputs, references), json_)
    scores = scoring().score(outputs, references[0], translator.tgt_lang, others=references[1:])
    systems = {model: outputs} | {name: translated_by(system, sources) for name, system in others.items()}
    compared = scoring().compare(systems, references, translator.tgt_lang, resamples) if resamples else []
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
    folder = model_folder(find_model(model))
    made = read_settings(folder / CONFIG)
    pairs = read_sides(data, (made.data.src_lang, made.data.tgt_lang), reverse, limit)
    learned = learn_shortlist(load_tokenizer(folder, made), pairs, frequent, each)
    save_shortlist(learned, out)
    known = f"{int((learned.table[:, 0] >= 0).sum()):,} source tokens, learned from {len(pairs):,} pairs"
    message(f"[dim]shortlist of {known}, saved as[/] {escape(str(out))}")


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
    return name, load_translator(name, "auto", device), pairs


def translate_all(
    translator: Translator, sources: list[str], decode: DecodeSettings, glossary: Glossary | None = None
) -> list[str]:
    """Translate behind a progress bar."""
    found = translator.stream(sources, decode, glossary=glossary)
    translations = progress_bar(found, len(sources), "translating")
    return [each.text for each in translations]


def other_system(name: str, n: int, device: str) -> list[str] | Translator:
    """Return what a system is compared by: the outputs in a file, or a model."""
    return read_outputs(name, n) if Path(name).is_file() else load_translator(name, "auto", device)


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
    unscored = [{"bleu": None, "chrf": None}] * len(outputs)
    scored = scoring().score_sentences(outputs, references, tgt_lang) if is_installed("sacrebleu") else unscored
    for (source, output, *known), found in zip(rows, scored, strict=True):
        yield to_json_line({"source": source, "output": output, "references": known, **to_json(found)})


def scoring() -> ModuleType:
    """Return the module that scores, which needs sacreBLEU."""
    from regard import score

    return score


@dataclass(frozen=True)
class Lengths:
    """What can be said of n outputs without sacreBLEU: lengths in characters, and how many are just a reference."""

    n: int
    source: int
    output: int
    reference: int  # of the first references
    same: int


def measure_lengths(sources: list[str], outputs: list[str], references: list[list[str]]) -> Lengths:
    """Count characters, and outputs that are equal to one of their references."""
    same = sum(text in known for text, *known in zip(outputs, *references, strict=True))
    source, output, reference = (sum(map(len, texts)) for texts in (sources, outputs, references[0]))
    return Lengths(len(outputs), source, output, reference, same)


def report_lengths(lengths: Lengths, json_: bool) -> None:
    """Say why there are no scores, and print what there is."""
    message(f"[yellow]{escape(str(missing('a score (BLEU, chrF)', 'sacrebleu')))}[/]")
    if json_:
        return print_json({"bleu": None, "chrf": None, "n": lengths.n, "systems": [], "lengths": lengths})
    table = Table(title=f"{lengths.n:,} sentences", show_header=False, **QUIET)
    table.add_row("source characters", f"{lengths.source:,}")
    table.add_row("output characters", f"{lengths.output:,}")
    table.add_row("reference characters", f"{lengths.reference:,}")
    table.add_row("outputs equal to a reference", f"{lengths.same:,}")
    print_tables(table)


def scores_table(scores: "Scores", compared: "list[SystemScore]") -> Table:
    """List scores with their signatures, and with their intervals where there are any."""
    table = Table(title=f"{scores.n:,} sentences", **QUIET)
    for column in ("score", "value", *(["95 % interval"] if compared else []), "signature"):
        table.add_column(column, justify="right" if column == "value" else "left")
    intervals = [(compared[0].bleu_interval, compared[0].chrf_interval)] if compared else []
    of_bleu, of_chrf = ([_interval(each[i]) for each in intervals] for i in (0, 1))
    table.add_row("BLEU", f"{scores.bleu:.2f}", *of_bleu, scores.bleu_signature)
    table.add_row("chrF", f"{scores.chrf:.2f}", *of_chrf, scores.chrf_signature)
    return table


def systems_table(compared: "list[SystemScore]") -> Table:
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
