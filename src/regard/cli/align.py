"""Commands about heads: heads, align."""

from pathlib import Path
from typing import Annotated

from typer import Option

from regard.align import Alignment, pair_weights
from regard.align import align as run_align
from regard.align.heads import RankedHeads, load_heads, save_heads
from regard.align.links import Gold, as_pharaoh, read_gold
from regard.cli.evaluate import read_with_model
from regard.cli.options import AnyModel, Device, Json, Limit, Out, Reverse
from regard.config import choose
from regard.data.files import read_lines
from regard.pipeline import load_translator
from regard.pipeline.translator import Translator
from regard.plot.style import check_figure, save_and_report
from regard.plot.tables import head_table
from regard.terminal import escape, message, open_output, print_json, print_tables, progress_bar
from regard.trace.head_report import ORDERS, report_heads
from regard.zoo import find_model, present

SORT = f"Sort heads by one of: {', '.join(ORDERS)}."
BLEU = "Also translate without each head in turn, which is slow."
REVERSE = "Model of the opposite direction, or none; a bundled model comes with its own."
GOLD = "Gold links (i-j sure, i?j possible): heads are chosen by them, and the alignment error rate is reported."
HEADS = "Heads as cross:LAYER:HEAD, separated by a comma from those of the reverse model; or measured, on this text."
UNITS = "Words: characters (at spaces, Chinese by character), pieces (Chinese by token) or tokenised (at spaces)."
SYMMETRISE = "How both directions are combined: intersection, union, grow-diag or grow-diag-final-and."
LINKS = "Write the links to this file instead of stdout; .png, .svg and .pdf draw one pair."
FIGURES = {".png", ".svg", ".pdf"}


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
