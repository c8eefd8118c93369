"""The command that learns short clips: `regard study video`."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Json, Out, Seed, study
from regard.cli.task_run import Doc, Quick, Seeds, Show, Ways, Wishes, hand_over, learn_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.study.page import Page
    from regard.study.task_report import TaskStudy


@study.command()
def video(
    ways: Ways = None,
    directions: Annotated[int, typer.Option(help="Directions in which a shape may move: 4 or 8.")] = 4,
    quick: Quick = False,
    seed: Seed = 0,
    seeds: Seeds = None,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
    doc: Doc = None,
) -> None:
    """Short clips of a moving shape as patches: which places tell its direction?"""
    wishes = Wishes(json_, out, doc)
    wishes.check()
    from regard.study.video import FULL, QUICK, SHOWN, WAYS, clips_task

    n = seeds if seeds is not None else 2 if quick else 3
    settings = QUICK if quick else FULL
    found = learn_task(clips_task(directions), ways or WAYS, settings, range(seed, seed + n), device, SHOWN)
    hand_over(found, wishes, Show(_draw, _tell))


def _draw(found: "TaskStudy") -> "Figure":
    from regard.study.video import draw_clips

    return draw_clips(found)


def _tell(found: "TaskStudy", command: str) -> "Page":
    from regard.study.clips_page import clips_page

    return clips_page(found, command)
