"""The command that takes heads out of a model one after another: study heads."""

from dataclasses import replace
from typing import Annotated

import typer

from regard.cli.options import Device, Json, Out, Seed, study
from regard.cli.study_page import Doc, Quick, check_places
from regard.cli.study_text import Data, Model, Sentences, hand_over, read_text, say_unread, short_name
from regard.plot.terminal import with_bar

QUICK_SENTENCES, QUICK_POINTS, QUICK_ORDERS = 60, 5, 1


@study.command("heads")
def prune_heads(
    model: Model = "zh-en",
    data: Data = None,
    sentences: Sentences = 500,
    points: Annotated[int, typer.Option(min=2, help="Numbers of heads at which quality is measured.")] = 11,
    orders: Annotated[int, typer.Option(min=1, help="Orders by chance.")] = 3,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    out: Out = None,
    doc: Doc = None,
    json_: Json = False,
) -> None:
    """How many heads does a model need? BLEU and loss while heads are taken out, in three orders."""
    check_places(out, doc)
    from regard.study.pruning import PruneSettings, run_pruning
    from regard.study.stats import signature

    wanted = min(sentences, QUICK_SENTENCES) if quick else sentences
    translator, pairs, place = read_text(model, data, wanted, device)
    settings = PruneSettings(points, orders, seed)
    if quick:
        settings = replace(settings, points=min(points, QUICK_POINTS), random_orders=QUICK_ORDERS)
    found = run_pruning(short_name(model), translator, pairs, settings, with_bar)
    say_unread(found.n_unread)

    def draw():
        from regard.study.pruning import draw_pruning

        return draw_pruning(found)

    from regard.study.pruning_page import pruning_page

    signed = signature(place, seed=seed, model=found.model, pairs=found.n_pairs, decoding="greedy")
    hand_over(found, draw, lambda: pruning_page(found), signed, (out, doc), json_)
