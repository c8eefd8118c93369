"""The command that asks at which layers position can be read: study position-probe."""

from dataclasses import replace
from typing import Annotated

import typer

from regard.cli.options import Device, Json, Out, Seed, study
from regard.cli.study_page import Doc, Quick, check_places
from regard.cli.study_text import Data, Model, Sentences, hand_over, read_text, say_unread, short_name
from regard.plot.terminal import with_bar

QUICK = {"splits": 3, "small_seeds": 1}
QUICK_STEPS = 400


@study.command("position-probe")
def position_probe(
    model: Model = "zh-en",
    data: Data = None,
    sentences: Sentences = 500,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps for which small models are taught.")] = None,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    out: Out = None,
    doc: Doc = None,
    json_: Json = False,
) -> None:
    """Is position lost in the upper layers? A linear probe reads it at each, with and without residuals."""
    check_places(out, doc)
    from regard.study.probe import ProbeSettings, run_position_probe
    from regard.study.stats import signature

    translator, pairs, place = read_text(model, data, sentences, device)
    settings = ProbeSettings(seed=seed)
    taught = steps or (QUICK_STEPS if quick else settings.small.steps)
    settings = replace(settings, **(QUICK if quick else {}), small=replace(settings.small, steps=taught))
    found = run_position_probe(short_name(model), translator, pairs, settings, place, with_bar)
    say_unread(found.n_unread)

    def draw():
        from regard.study.probe import draw_position_probe

        return draw_position_probe(found)

    from regard.study.probe_page import probe_page

    signed = signature(place, seed=seed, model=found.model, pairs=found.n_pairs)
    hand_over(found, draw, lambda: probe_page(found), signed, (out, doc), json_)
