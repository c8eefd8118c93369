"""The command that learns dialogues: `regard study dialogue`."""

from typing import TYPE_CHECKING

from regard.cli.options import Device, Json, Out, Seed, study
from regard.cli.task_run import Doc, Quick, Seeds, Show, Ways, Wishes, hand_over, learn_task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.study.page import Page
    from regard.study.task_report import TaskStudy


@study.command()
def dialogue(
    ways: Ways = None,
    quick: Quick = False,
    seed: Seed = 0,
    seeds: Seeds = None,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
    doc: Doc = None,
) -> None:
    """Who said what, and when: dialogues whose transcript has neither names nor order."""
    wishes = Wishes(json_, out, doc)
    wishes.check()
    from regard.study.dialogue import FULL, QUICK, SHOWN, WAYS, talks_task

    n = seeds if seeds is not None else 2 if quick else 3
    settings = QUICK if quick else FULL
    found = learn_task(talks_task(), ways or WAYS, settings, range(seed, seed + n), device, SHOWN)
    hand_over(found, wishes, Show(_draw, _tell))


def _draw(found: "TaskStudy") -> "Figure":
    from regard.study.dialogue import draw_talks

    return draw_talks(found)


def _tell(found: "TaskStudy", command: str) -> "Page":
    from regard.study.talks_page import talks_page

    return talks_page(found, command)
