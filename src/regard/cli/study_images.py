"""The command that learns small images: `regard study images`."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Json, Out, Seed, study
from regard.cli.task_run import Doc, Quick, Seeds, Show, Ways, Wishes, hand_over, learn_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.study.page import Page
    from regard.study.task_report import TaskStudy


@study.command()
def images(
    ways: Ways = None,
    patch: Annotated[int | None, typer.Option(help="Pixels along a side of a patch: 1, 2 or 4.")] = None,
    quick: Quick = False,
    seed: Seed = 0,
    seeds: Seeds = None,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
    doc: Doc = None,
) -> None:
    """Handwritten digits as patches: must a classifier know where each patch lies?"""
    wishes = Wishes(json_, out, doc)
    wishes.check()
    from regard.study.images import FULL, QUICK, SHOWN, SIDE, WAYS, digits_task

    task = digits_task(SIDE if patch is None else patch)
    n = seeds if seeds is not None else 2 if quick else 3
    found = learn_task(task, ways or WAYS, QUICK if quick else FULL, range(seed, seed + n), device, SHOWN)
    hand_over(found, wishes, Show(_draw, _tell))


def _draw(found: "TaskStudy") -> "Figure":
    from regard.study.images import draw_digits

    return draw_digits(found)


def _tell(found: "TaskStudy", command: str) -> "Page":
    from regard.study.digits_page import digits_page

    return digits_page(found, command)
