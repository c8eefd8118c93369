"""The command that asks how words and positions lie to each other: study subspaces."""

from dataclasses import replace
from typing import Annotated

import typer

from regard.cli.options import Device, Json, Out, Seed, study
from regard.cli.study_page import Doc, Quick, check_places
from regard.cli.study_text import Data, Model, Sentences, hand_over, read_text, say_unread, short_name
from regard.plot.terminal import with_bar

QUICK_DRAWS = 20


@study.command("subspaces")
def subspaces(
    model: Model = "zh-en",
    data: Data = None,
    sentences: Sentences = 500,
    share: Annotated[float, typer.Option(help="Share of the variance that a subspace holds.")] = 0.9,
    top: Annotated[list[int] | None, typer.Option(min=1, help="Dimensions of both subspaces; may be repeated.")] = None,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    out: Out = None,
    doc: Doc = None,
    json_: Json = False,
) -> None:
    """Do words and positions live in nearly orthogonal subspaces, and which features carry position?"""
    check_places(out, doc)
    from regard.study.stats import signature
    from regard.study.subspaces import SubspaceSettings, run_subspaces

    translator, pairs, place = read_text(model, data, sentences, device)
    settings = SubspaceSettings(share=share, seed=seed)
    settings = replace(settings, tops=tuple(top)) if top else settings
    settings = replace(settings, draws=QUICK_DRAWS) if quick else settings
    found = run_subspaces(short_name(model), translator, pairs, settings, with_bar)
    say_unread(found.n_unread)

    def draw():
        from regard.study.subspaces import draw_subspaces

        return draw_subspaces(found)

    from regard.study.subspaces_page import subspaces_page

    signed = signature(place, seed=seed, model=found.model, pairs=found.n_pairs)
    hand_over(found, draw, lambda: subspaces_page(found), signed, (out, doc), json_)
