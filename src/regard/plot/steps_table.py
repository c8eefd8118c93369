"""What was said at each step and what might have been, as a table in the terminal."""

from collections.abc import Sequence
from math import exp

from rich.table import Table
from rich.text import Text

from regard.plot.table import QUIET
from regard.plot.words import readable
from regard.trace.trace import Step


def steps_table(steps: Sequence[Step], most: int = 3, title: str = "What was said") -> Table:
    """Lists each piece with its probability and the likeliest others."""
    table = Table(title=title, **QUIET)
    table.add_column("said", no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    table.add_column("instead", no_wrap=True)
    for step in steps:
        others = [each for each in step.alternatives if each.piece != step.piece][:most]
        cells = [f"{readable(each.piece)} {_chance(each.log_prob)}" for each in others]
        table.add_row(Text(readable(step.piece), "bold"), _chance(step.log_prob), Text("  ".join(cells), "dim"))
    return table


def _chance(log_prob: float) -> str:
    chance = exp(log_prob)
    return f"{chance:.0%}" if chance >= 0.005 else "<1%"
