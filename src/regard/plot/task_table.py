"""What came of a task, as a table."""

from rich.table import Table

from regard.plot.table import QUIET
from regard.study.spread import Spread
from regard.study.task_study import Row, TaskStudy

CAPTION = (
    "right in %, test: mean ± standard deviation over the seeds, each model as it was when validation was best; at "
    "most: what no reader of sets that is told these coordinates can exceed on this test; shuffled: the same models, "
    "the tokens of each test example in another order while the places stay."
)


def task_table(study: TaskStudy) -> Table:
    """Lists the ways of telling places."""
    seeds = len(study.rows[0].trials)
    sizes = f"{study.n_train:,} to learn from, {study.n_valid:,} to choose by, {study.n_test:,} to test"
    title = f"{study.task} of {len(study.classes)} classes, {sizes}, {seeds} seed{'s' * (seeds > 1)}"
    table = Table(title=title, caption=CAPTION, **QUIET)
    for column in ("positions", "told", "parameters", "valid", "test", "at most", "shuffled"):
        table.add_column(column, justify="left" if column in {"positions", "told"} else "right")
    for row in study.rows:
        table.add_row(*_cells(row))
    return table


def percent(share: float) -> str:
    """Writes a share as a percentage."""
    return f"{100 * share:.1f} %"


def spread_percent(share: Spread) -> str:
    """Writes a mean with its spread in percent."""
    return f"{100 * share.mean:.1f} ± {100 * share.spread:.1f}"


def _cells(row: Row) -> list[str]:
    shares = (f"{100 * row.valid.mean:.1f}", spread_percent(row.test), f"{100 * row.bound:.1f}")
    told = ", ".join(row.coordinates) or "nothing"
    scheme = row.name.partition(":")[0]
    return [scheme, told, f"{row.parameters:,}", *shares, f"{100 * row.shuffled.mean:.1f}"]
