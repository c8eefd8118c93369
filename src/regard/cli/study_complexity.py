"""The command that measures what layers cost: study complexity."""

from typing import TYPE_CHECKING

from regard.cli.options import Device, Json, Out, Seed, study
from regard.cli.study_page import Doc, Quick, check_places, keep
from regard.plot.terminal import print_json, print_tables, say
from regard.study.page import Page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.study.complexity import ComplexityStudy


@study.command()
def complexity(
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
    doc: Doc = None,
) -> None:
    """Attention, recurrence, convolution: operations, steps, paths, time, memory; and training in parallel."""
    check_places(out, doc)
    result = _measured(quick, seed, device)

    def draw() -> "Figure":
        from regard.study.complexity import draw_complexity

        return draw_complexity(result)

    def page() -> Page:
        from regard.study.complexity_page import complexity_page

        command = f"regard study complexity{' --quick' * quick} --device {result.device} --seed {seed}"
        return complexity_page(result, command)

    keep(draw, page, out, doc)
    if json_:
        return print_json(result)
    from regard.study.complexity import complexity_tables

    print_tables(*complexity_tables(result))


def _measured(quick: bool, seed: int, device: str) -> "ComplexityStudy":
    """Says what is measured, while one waits."""
    from dataclasses import replace

    from regard.study.complexity import SETTINGS, ComplexityStudy, run_complexity
    from regard.study.complexity import quick as quicker
    from regard.train.run import choose_device

    chosen = choose_device(device)
    settings = replace(SETTINGS[chosen.type], seed=seed)
    for told in run_complexity(quicker(settings) if quick else settings, chosen):
        if isinstance(told, ComplexityStudy):
            return told
        say(f"[dim]measuring {told}[/]")
    raise AssertionError("the study ends with its result")
