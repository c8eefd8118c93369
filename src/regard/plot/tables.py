"""Tables of traces and heads, for the terminal."""

from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from rich.text import Text

from regard.shapes import Float
from regard.terminal import QUIET, readable, shorten
from regard.trace.decompose import Terms
from regard.trace.summary import LayerEntropies
from regard.trace.trace import OutputToken

if TYPE_CHECKING:
    from regard.trace.head_report import HeadReport, HeadSummary


def word_attention_table(
    weights: Float[np.ndarray, "T S"],
    src: Sequence[str],
    tgt: Sequence[str],
    most: int = 3,
    title: str = "What each word attended to",
) -> Table:
    """List each target word with the source words of the largest shares, the largest first."""
    if weights.shape != (len(tgt), len(src)):
        raise ValueError(
            f"weights must have a row for each target word and a column for each source word, "
            f"got {weights.shape} and {len(tgt)} target, {len(src)} source words"
        )
    if most < 1:
        raise ValueError(f"most must be 1 or more, got {most}")
    table = Table(title=title, **QUIET)
    table.add_column("output", no_wrap=True)
    for rank in range(min(most, len(src))):
        table.add_column("attended to" if rank == 0 else "", no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
    for word, row in zip(tgt, weights, strict=True):
        best: list[int] = np.argsort(-row, kind="stable")[:most].tolist()
        table.add_row(Text(readable(word), "bold"), *(cell for at in best for cell in _cells(src[at], float(row[at]))))
    return table


def _cells(word: str, share: float) -> tuple[Text, Text]:
    """Return a word with its share, both fainter where there is little of it, and nothing where there is none."""
    if share < 0.005:
        return Text(), Text()
    style = "" if share >= 0.1 else "dim"
    return Text(readable(word), style), Text(f"{share:.0%} ", style)


def steps_table(steps: Sequence[OutputToken], most: int = 3, title: str = "Output tokens") -> Table:
    """List each piece with its probability and the likeliest others."""
    table = Table(title=title, **QUIET)
    table.add_column("token", no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    table.add_column("alternatives", no_wrap=True)
    for step in steps:
        others = [each for each in step.alternatives if each.piece != step.piece][:most]
        cells = [f"{readable(each.piece)} {_chance(each.log_prob)}" for each in others]
        table.add_row(Text(readable(step.piece), "bold"), _chance(step.log_prob), Text("  ".join(cells), "dim"))
    return table


def _chance(log_prob: float) -> str:
    chance = exp(log_prob)
    return f"{chance:.0%}" if chance >= 0.005 else "<1%"


BLOCKS = "▁▂▃▄▅▆▇█"
SPREAD_CAPTION = (
    "one block for each head: ▁ attends to one token, █ to all alike (mean entropy as a share of the largest)"
)


def spread_table(layers: Sequence[LayerEntropies], title: str = "How spread out each head's attention is") -> Table:
    """List the kinds of attention, a column for each layer, a block for each head."""
    kinds = list(dict.fromkeys(each.kind for each in layers))
    depth = max((each.layer for each in layers), default=-1) + 1
    table = Table(title=title, caption=SPREAD_CAPTION, **QUIET)
    table.add_column("attention", no_wrap=True)
    for layer in range(depth):
        table.add_column(f"layer {layer}", no_wrap=True)
    for kind in kinds:
        rows = {each.layer: each.heads for each in layers if each.kind == kind}
        table.add_row(kind, *(Text("".join(map(_block, rows.get(layer, [])))) for layer in range(depth)))
    return table


def _block(share: float) -> str:
    return BLOCKS[min(int(share * len(BLOCKS)), len(BLOCKS) - 1)]


def numbers_table(
    values: Float[Any, "Q K"], queries: Sequence[str], keys: Sequence[str], title: str, caption: str = ""
) -> Table:
    """List a row for each query and a column for each key; the largest of each row stands out."""
    table = Table(title=title, caption=caption or None, **QUIET)
    table.add_column("", no_wrap=True)
    for key in keys:
        table.add_column(shorten(readable(key), 6), justify="right", no_wrap=True)
    for query, row in zip(queries, values.tolist(), strict=True):
        cells = (Text(f"{value:.2f}", "bold" if value == max(row) else "") for value in row)
        table.add_row(Text(readable(query), "bold"), *cells)
    return table


def terms_tables(terms: Terms, queries: Sequence[str], keys: Sequence[str]) -> list[Table]:
    """List each term, and the score that they add up to."""
    tables = [numbers_table(term, queries, keys, name) for name, term in zip(terms.names, terms.terms, strict=True)]
    off = f"the terms add up to it but for {terms.error:.1e} of the largest score"
    return [*tables, numbers_table(terms.total, queries, keys, "score", off)]


HEADS_CAPTION = (
    "entropy: mean of the rows, in nats; offset: mean of key − query; then the share of the weight on the same "
    "position, the previous and the next one, the first token, the end of the sentence and punctuation; loss, BLEU: "
    "by how much the loss rises and BLEU falls with the head switched off."
)
# Narrow enough for 80 columns.
HEADINGS = {
    "entropy": "en-\ntropy",
    "offset": "off-\nset",
    "diagonal": "diag-\nonal",
    "previous": "pre-\nvious",
    "next": "next",
    "first": "first",
    "end": "end",
    "punctuation": "punc-\ntua-\ntion",
}
CLOSE = {**QUIET, "padding": 0}
FORMS = {"entropy": ".2f", "offset": "+z.1f"}


def head_table(report: "HeadReport", by: str = "loss") -> Table:
    """List heads by one of their columns, see `HeadReport.ranked`."""
    table = Table(title=f"Heads by {by}, {_whole(report)}", caption=HEADS_CAPTION, **CLOSE)
    for name in ("head", *HEADINGS.values(), "loss", "BLEU"):
        table.add_column(name, justify="left" if name == "head" else "right", no_wrap=True)
    for head in report.ranked(by).heads:
        table.add_row(str(head), *_head_cells(head))
    return table


def _whole(report: "HeadReport") -> str:
    """Say what the model is worth with all its heads."""
    bleu = "" if report.whole.bleu is None else f", BLEU {report.whole.bleu:.2f}"
    return f"{report.n_pairs:,} pairs: loss {report.whole.loss:.3f}{bleu} with all of them"


def _head_cells(head: "HeadSummary") -> list[str]:
    habits = [_head_cell(getattr(head.habits, name), FORMS.get(name, ".0%")) for name in HEADINGS]
    return [*habits, _head_cell(head.loss, "+z.4f"), _head_cell(head.bleu, "+z.2f")]


def _head_cell(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form).replace("-", "−")
