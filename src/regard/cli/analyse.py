"""Heads, align."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Json, Out, Reverse, app
from regard.cli.studies import check_out, keep_figure
from regard.cli.translate import MODEL
from regard.plot.terminal import escaped, print_json, print_tables, say, with_bar, writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.align import AlignedPair, Alignment
    from regard.align.heads import RankedHeads
    from regard.align.links import Gold


SUPPOSED = ("zh", "en")  # languages of a text in a format that names them, where no model does


def read_with(
    model: str | None, data: list[str], device: str, reverse: bool = False, most: int | None = None
) -> tuple[str, Any, list[tuple[str, str]]]:
    """Opens a model, or the bundled one that suits the text; gives its name, itself, and the pairs that are wanted."""
    from regard.data.formats import read_pairs
    from regard.pipeline import load_translator

    turn = -1 if reverse else 1
    translator = None if model is None else load_translator(model, device=device)
    languages = SUPPOSED if translator is None else (translator.src_lang, translator.tgt_lang)
    read = read_pairs(data, *languages[::turn])
    pairs = [(pair.tgt, pair.src) if reverse else (pair.src, pair.tgt) for pair in islice(read, most)]
    if model is not None:
        return model, translator, pairs
    name = _suiting(pairs)
    return name, load_translator(name, device=device), pairs


def _suiting(pairs: list[tuple[str, str]]) -> str:
    from regard.zoo import pick

    name = pick(None, None, [src for src, _ in pairs[:100]])
    say(f"[dim]reading with the bundled model {name}[/]")
    return name


SORT = "loss, bleu, entropy, spread, offset, diagonal, previous, next, first, end, punctuation, kind, layer or head."


@app.command()
def heads(
    data: Annotated[list[str], typer.Option(help="Parallel text on which heads are measured.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help=MODEL, show_default="by the text")] = None,
    sentences: Annotated[int, typer.Option(min=1, help="Pairs that are read, from the first on.")] = 200,
    bleu: Annotated[bool, typer.Option("--bleu", help="Also translate without each head: slow.")] = False,
    sort: Annotated[str, typer.Option(help=SORT)] = "loss",
    reverse: Reverse = False,
    device: Device = "cpu",
    out: Out = None,
    json_: Json = False,
) -> None:
    """Where each head looks, and what is lost without it: loss, and with --bleu the translations."""
    from regard.config import choose
    from regard.trace.head_report import ORDERS, report_heads

    check_out(out)
    choose(dict.fromkeys(ORDERS), sort, "order of heads")
    _, translator, pairs = read_with(model, data, device, reverse, sentences)
    report = report_heads(translator, pairs, bleu, with_bar)
    if report.n_unread:
        say(f"[yellow]pairs left out, as a side is empty or longer than the model reads: {report.n_unread}[/]")
    if out is not None:
        from regard.plot.head_values import report_figure

        keep_figure(report_figure(report), out)
    if json_:
        return print_json(report.ranked(sort))
    from regard.plot.terminal import head_table

    print_tables(head_table(report, sort))


REVERSE = "A model of the other direction, or none; a bundled model brings its own."
GOLD = "Gold links, i-j where sure, i?j where possible: heads are chosen by them, and the error rate is given."
HEADS = "Heads as cross:LAYER:HEAD, a comma before those of the reverse model; or measured, on this text."
UNITS = "Words: characters (split at spaces, Chinese by character), pieces (Chinese by piece), tokenised (at spaces)."
SYMMETRISE = "How both directions are joined: intersection, union, grow-diag, grow-diag-final-and."
OUT = "Write the links here instead of to stdout; .png, .svg and .pdf draw one pair."


@app.command()
def align(
    data: Annotated[list[str], typer.Option(help="Parallel text: sentences and their translations.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help=MODEL, show_default="by the text")] = None,
    reverse_model: Annotated[str | None, typer.Option(help=REVERSE)] = None,
    gold: Annotated[str | None, typer.Option(help=GOLD)] = None,
    heads: Annotated[str | None, typer.Option(help=HEADS, show_default="those kept beside the model")] = None,
    units: Annotated[str, typer.Option(help=UNITS)] = "characters",
    symmetrise: Annotated[str, typer.Option(help=SYMMETRISE)] = "grow-diag-final-and",
    out: Annotated[Path | None, typer.Option("--out", "-o", help=OUT)] = None,
    pair: Annotated[int, typer.Option(min=1, help="The pair that a figure shows, counted from 1.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the chosen heads beside the models.")] = False,
    device: Device = "cpu",
    json_: Json = False,
) -> None:
    """Which words of sentence pairs belong together, as Pharaoh's i-j, from the heads that align best."""
    figure = out if out is not None and out.suffix.lower() in {".png", ".svg", ".pdf"} else None
    check_out(figure)
    name, translator, pairs = read_with(model, data, device)
    models = [name, *_reverse(reverse_model, name, translator)]
    from regard.align import align as run_align
    from regard.pipeline import load_translator

    reverse = load_translator(models[1], device=device) if len(models) == 2 else None
    links = _gold(gold)
    asked = _asked(heads, models, gold is not None)
    found = run_align(translator, pairs, reverse, links, asked, units, symmetrise, with_bar)
    _tell(found, models, heads is None)
    if keep:
        _keep(found, models, data)
    if figure is not None:
        number = _checked(pair, found)
        weights = _weights(found, translator, pairs[number], reverse, units)
        keep_figure(_drawn(found.pairs[number], weights, None if links is None else links[number]), figure)
    if json_:
        print_json(found)
    if not json_ or out != figure:
        _write(found, None if out == figure else out)


def _reverse(asked: str | None, name: str, translator: Any) -> list[str]:
    """Names the model of the other direction: as asked, or the bundled one of a bundled model."""
    from regard.zoo import present

    if asked is not None:
        return [] if asked == "none" else [asked]
    ways = {each: (bundled.src_lang, bundled.tgt_lang) for each, bundled in present().items()}
    turned = translator.tgt_lang, translator.src_lang
    return [each for each, way in ways.items() if name in ways and way == turned][:1]


def _gold(source: str | None) -> "list[Gold] | None":
    if source is None:
        return None
    from regard.align.links import read_gold
    from regard.data.files import read_lines

    return read_gold(read_lines(source), source)


def _asked(heads: str | None, models: list[str], gold: bool) -> list[str]:
    """Gives the names of heads that are not to be measured: those told or, without gold links, those kept."""
    if heads == "measured" or (heads is None and gold):
        return []
    if heads is not None:
        return heads.split(",")
    from regard.align.heads import load_heads
    from regard.zoo import find_model

    return [load_heads(find_model(model)) or "" for model in models]


def _tell(found: "Alignment", models: list[str], kept: bool) -> None:
    """Says which heads were asked and why, and how good the links are."""
    for name, chosen in zip(models, (found.forward, found.backward), strict=False):
        if chosen is not None:
            say(escaped(f"{name}: {chosen.heads}, {_reason(chosen, kept)}"))
    if found.n_unread:
        say(f"[yellow]pairs without links, as a side is empty or longer than a model reads: {found.n_unread}[/]")
    if found.score is not None:
        rates = found.score.aer, found.score.precision, found.score.recall
        shares = zip(("alignment error rate", "precision", "recall"), rates, strict=True)
        say(", ".join(f"{what} {share:.1%}" for what, share in shares) + f" on {found.score.n:,} pairs")


def _reason(chosen: "RankedHeads", kept: bool) -> str:
    if not chosen.rated:
        return "as kept beside the model" if kept else chosen.by
    last = max(int(layer) for _, layer, *_ in (each.heads.split(":") for each in chosen.rated) if layer != "all")
    others = {"mean of all heads": "cross:all:all:say", "first head of the last layer": f"cross:{last}:0:say"}
    values = {what: chosen.value(heads) for what, heads in others.items()}
    beside = ", ".join(f"{what} {value:.3f}" for what, value in values.items() if value is not None)
    best = chosen.value(chosen.heads)
    return f"by {chosen.by} on {chosen.n_pairs:,} pairs: {best:.3f}" + f" ({beside})" * bool(beside)


def _keep(found: "Alignment", models: list[str], data: list[str]) -> None:
    from regard.align.heads import save_heads
    from regard.zoo import find_model

    on = ", ".join(f"{Path(each).parent.name}/{Path(each).name}" for each in data)
    for name, chosen in zip(models, (found.forward, found.backward), strict=False):
        if chosen is not None:
            say(f"[dim]heads kept in[/] {escaped(str(save_heads(find_model(name), chosen, on)))}")


def _checked(pair: int, found: "Alignment") -> int:
    """Gives the place of the pair that is to be drawn."""
    if pair > len(found.pairs):
        raise ValueError(f"--pair must be one of the {len(found.pairs)} pairs, got {pair}")
    return pair - 1


def _weights(found: "Alignment", translator: Any, pair: tuple[str, str], reverse: Any, units: str) -> Any:
    from regard.align import pair_weights

    heads = [chosen.heads for chosen in (found.forward, found.backward) if chosen is not None]
    return pair_weights(translator, pair, reverse, heads, units)


def _drawn(pair: "AlignedPair", weights: Any, gold: "Gold | None") -> "Figure":
    from regard.plot.words import draw_alignment

    sure, possible = (gold.sure, gold.possible) if gold is not None else ((), ())
    return draw_alignment(weights.numpy(), pair.src, pair.tgt, pair.links, sorted(sure), sorted(possible))


def _write(found: "Alignment", out: Path | None) -> None:
    """Writes a line of links for each pair."""
    from regard.align.links import as_pharaoh

    with writing(out) as write:
        for each in found.pairs:
            write(as_pharaoh(each.links))
