"""What is left of a model as heads are taken out, as tables in the terminal."""

from rich.table import Table

from regard.plot.table import QUIET
from regard.study.pruning import Curve, PruneStudy

CAPTION = (
    "BLEU of greedy translations and loss of a target token, in nats, with so many heads left, measured again at each "
    "point; ± is the standard deviation over the orders by chance."
)
MOST_HEADS = 10  # that are listed from either end


def pruning_table(study: PruneStudy) -> Table:
    """Lists all curves, number by number."""
    title = f"Heads of {study.model} taken out, {study.n_pairs} pairs"
    table = Table(title=title, caption=CAPTION, **QUIET)
    for column in ("heads", *(f"{what},\n{curve.order}" for what in ("BLEU", "loss") for curve in study.curves)):
        table.add_column(column, justify="right")
    for number, kept in enumerate(study.curves[0].points):
        bleus = [_cell(curve, number, "bleu", ".1f") for curve in study.curves]
        losses = [_cell(curve, number, "loss", ".2f") for curve in study.curves]
        table.add_row(str(kept.n), *bleus, *losses)
    return table


def importance_table(study: PruneStudy) -> Table:
    """Lists the heads that matter most, and those that matter least."""
    title = f"Rise of the loss without one head, {study.n_ranked_on} other pairs"
    table = Table(title=title, **QUIET)
    for column in ("most", "loss ", "least", "loss"):
        table.add_column(column, justify="right" if column.startswith("loss") else "left")
    n = min(MOST_HEADS, len(study.importance))
    for one, other in zip(study.importance[:n], study.importance[::-1][:n], strict=True):
        table.add_row(one[0], _signed(one[1]), other[0], _signed(other[1]))
    return table


def _cell(curve: Curve, number: int, what: str, form: str) -> str:
    found = getattr(curve.points[number], what)
    return format(found.mean, form) + (f" ± {found.spread:{form}}" if found.n > 1 else "")


def _signed(number: float) -> str:
    return f"{number:+.4f}".replace("-", "−")
