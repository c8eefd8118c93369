"""The report on a model's heads as a table in the terminal."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

from rich.table import Table

from regard.plot.table import QUIET

CAPTION = (
    "entropy: mean of the rows, in nats; offset: mean of key − query; then the share of the "
    "weight on the own place, the one before, the first token and punctuation; loss, BLEU: what switching the head off "
    "adds to the one and takes from the other."
)


class HeadRow(NamedTuple):
    """What is known of one head; None where it was not measured."""

    kind: str
    layer: int
    head: int
    entropy: float
    offset: float
    diagonal: float
    previous: float
    first: float
    punctuation: float
    loss: float | None = None
    bleu: float | None = None


# Narrow enough for 80 columns.
_HEADINGS = {
    "layer": "lay-\ner",
    "entropy": "en-\ntropy",
    "offset": "off-\nset",
    "diagonal": "diag-\nonal",
    "previous": "pre-\nvious",
    "punctuation": "punc-\ntua-\ntion",
    "bleu": "BLEU",
}
_FORMS = {"entropy": ".2f", "offset": "+z.1f", "loss": "+z.3f", "bleu": "+z.2f"}


def head_table(rows: Sequence[HeadRow], by: str = "loss", title: str = "Heads") -> Table:
    """Lists heads by one of their columns: numbers from the largest down, names and places from the first on."""
    if by not in HeadRow._fields:
        near = get_close_matches(by, HeadRow._fields, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"heads can be sorted by {', '.join(HeadRow._fields)}, got {by!r}{hint}")
    table = Table(title=f"{title}, by {by}", caption=CAPTION, **QUIET)
    for name in HeadRow._fields:
        table.add_column(_HEADINGS.get(name, name), justify="left" if name == "kind" else "right", no_wrap=True)
    for row in sorted(rows, key=lambda row: _rank(row, by)):
        table.add_row(*(_cell(name, value) for name, value in zip(HeadRow._fields, row, strict=True)))
    return table


def _rank(row: HeadRow, by: str) -> tuple[object, ...]:
    """Gives what rows are compared by: what was not measured comes last, and equal ones in the order of the model."""
    value = getattr(row, by)
    place = (row.kind, row.layer, row.head)
    if by in {"kind", "layer", "head"}:
        return (value, *place)
    return (value is None, -(value or 0.0), *place)


def _cell(name: str, value: str | int | float | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, str | int):
        return str(value)
    return format(value, _FORMS.get(name, ".0%")).replace("-", "−")
