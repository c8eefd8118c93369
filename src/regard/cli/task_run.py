"""What the commands on tasks do alike: learn, draw, write a page, print."""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.studies import check_out, keep_figure
from regard.plot.terminal import escaped, print_json, print_tables, say, with_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.study.page import Page
    from regard.study.task import Task
    from regard.study.task_report import TaskStudy
    from regard.study.trials import TaskSettings

_WAYS = "Position schemes, each by itself or with its axes, as in grid_2d:row,column; by default the study's own."
_SEEDS = "How often each way is learned, with seeds from --seed on: by default 3, or 2 if quick."
_DOC = "Write a page about this run here (.md), its picture into images/ beside it."
Ways = Annotated[list[str] | None, typer.Argument(help=_WAYS)]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer epochs and 2 seeds: a few minutes on two cores.")]
Seeds = Annotated[int | None, typer.Option(help=_SEEDS)]
Doc = Annotated[Path | None, typer.Option("--doc", help=_DOC)]


@dataclass(frozen=True)
class Wishes:
    """What is to become of the result."""

    json: bool
    out: Path | None
    doc: Path | None

    def check(self) -> None:
        """Refuses files that could not be written before anything is computed."""
        from regard.study.page import check_page

        check_out(self.out)
        check_page(self.doc)


@dataclass(frozen=True)
class Show:
    """How a study is drawn and told of; called only where somebody asks for it."""

    draw: Callable[["TaskStudy"], "Figure"]
    tell: Callable[["TaskStudy", str], "Page"]


def learn_task(
    task: "Task", ways: Sequence[str], settings: "TaskSettings", seeds: range, device: str, show: Sequence[int]
) -> "TaskStudy":
    """Learns a task in every way with every seed, as many at once as the machine can, under a bar."""
    from regard.study.parallel import at_once
    from regard.study.task import read_told
    from regard.study.task_report import conclude
    from regard.study.trials import run_beside
    from regard.train.run import choose_device

    if not seeds:
        raise ValueError("--seeds must be 1 or more, got 0")
    told = [read_told(way, task.axes) for way in ways]
    chosen = choose_device(device)
    trials = run_beside(task, told, settings, seeds, chosen, at_once(chosen.type))
    found = list(with_bar(trials, len(told) * len(seeds), "learning"))
    found.sort(key=lambda each: (told.index(each[0].told), each[0].seed))
    return conclude(task, settings, found, show)


def hand_over(study: "TaskStudy", wishes: Wishes, show: Show) -> None:
    """Draws, writes and prints what was asked for."""
    if wishes.out is not None:
        keep_figure(show.draw(study), wishes.out)
    if wishes.doc is not None:
        from regard.study.page import write_page

        write_page(show.tell(study, shlex.join(["regard", *sys.argv[1:]])), show.draw(study), wishes.doc)
        say(f"[dim]page saved as[/] {escaped(str(wishes.doc))}")
    if wishes.json:
        return print_json(study)
    from regard.study.task_report import task_table

    print_tables(task_table(study))
