"""The command that judges position schemes on longer texts than they learned from: study extrapolate."""

from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Json, Out, Seed, study
from regard.cli.study_page import Doc, Quick, check_places, keep
from regard.plot.terminal import print_json, print_tables, with_bar
from regard.study.page import Page

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@study.command()
def extrapolate(
    names: Annotated[list[str] | None, typer.Argument(help="Schemes to train; all if none is named.")] = None,
    task: Annotated[str, typer.Option(help="chain: the next symbol by the two before; copy: the source.")] = "chain",
    length: Annotated[int, typer.Option(help="The longest text that is learned from, in symbols.")] = 16,
    steps: Annotated[int | None, typer.Option(help="Training steps of a model.", show_default="by task")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from --seed on.")] = 3,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
    doc: Doc = None,
) -> None:
    """Position schemes beyond the lengths that they learned from: loss at n, 2n, 3n and 4n."""
    from regard.study.extrapolate import ExtrapolateStudy, make_settings, run_extrapolate, schemes
    from regard.train.run import choose_device

    check_places(out, doc)
    chosen = choose_device(device)
    settings = make_settings(task, length, steps, seeds, seed, quick)
    total = len(names or schemes(length)) * settings.n_seeds + 1
    result = list(with_bar(run_extrapolate(names or [], settings, chosen), total, "training"))[-1]
    assert isinstance(result, ExtrapolateStudy), "the study ends with its result"

    def draw() -> "Figure":
        from regard.study.extrapolate import draw_extrapolate

        return draw_extrapolate(result)

    def page() -> Page:
        from regard.study.extrapolate_page import extrapolate_page

        made = f"--task {task} --length {length} --steps {settings.steps} --seeds {settings.n_seeds} --seed {seed}"
        words = ["regard study extrapolate", *(names or []), made, f"--device {chosen.type}"]
        return extrapolate_page(result, " ".join(words))

    keep(draw, page, out, doc)
    if json_:
        return print_json(result)
    from regard.study.extrapolate import extrapolate_table

    print_tables(extrapolate_table(result))
