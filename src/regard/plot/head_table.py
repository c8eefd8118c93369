"""The report on a model's heads as a table in the terminal."""

from rich.table import Table

from regard.plot.table import QUIET
from regard.trace.heads import Head, HeadReport

CAPTION = (
    "entropy: mean of the rows, in nats; offset: mean of key − query; then the share of the weight on the own place, "
    "the one before, the one after, the first token, the end of the sentence and punctuation; loss, BLEU: what "
    "switching the head off adds to the one and takes from the other."
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


def head_table(report: HeadReport, by: str = "loss") -> Table:
    """Lists heads by one of their columns, see `HeadReport.ranked`."""
    table = Table(title=f"Heads by {by}, {_whole(report)}", caption=CAPTION, **CLOSE)
    for name in ("head", *HEADINGS.values(), "loss", "BLEU"):
        table.add_column(name, justify="left" if name == "head" else "right", no_wrap=True)
    for head in report.ranked(by).heads:
        table.add_row(str(head), *_cells(head))
    return table


def _whole(report: HeadReport) -> str:
    """Says what the model is worth with all its heads."""
    bleu = "" if report.whole.bleu is None else f", BLEU {report.whole.bleu:.2f}"
    return f"{report.n_pairs:,} pairs: loss {report.whole.loss:.3f}{bleu} with all of them"


def _cells(head: Head) -> list[str]:
    habits = [_cell(getattr(head.habits, name), FORMS.get(name, ".0%")) for name in HEADINGS]
    return [*habits, _cell(head.loss, "+z.4f"), _cell(head.bleu, "+z.2f")]


def _cell(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form).replace("-", "−")
