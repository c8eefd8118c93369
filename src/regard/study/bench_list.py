"""The suites as a table in the terminal: what each asks, and what it lacks here."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from regard.plot.terminal import QUIET
from regard.study.suites import GET_THEM, Suite, lacking, told


def suites_table(suites: Sequence[Suite], scripts: Path | None) -> Table:
    """Lists the suites; without their scripts only by name."""
    table = Table(title="Suites of regard bench", caption=GET_THEM if scripts is None else None, **QUIET)
    for head in ("suite", "device", "what it asks", "what it lacks here"):
        table.add_column(head)
    for suite in suites:
        words = told(scripts / suite.script) if scripts is not None else []
        lacks = "" if scripts is None else lacking(suite, scripts) or ""
        table.add_row(suite.name, suite.device, words[0] if words else "", lacks)
    return table
