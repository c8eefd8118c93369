"""Figures with a number for each head or sub-layer, compared with the numbers."""

import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from regard.plot.head_values import HeadEffects, HeadEntropies, draw_entropy_map, draw_importance_map, report_figure
from regard.plot.traces import StreamNorms, draw_norms
from regard.trace.head_ablation import Quality
from regard.trace.head_report import HeadReport
from tests.plot.figures import numbers, weights
from tests.plot.seen import drawn_texts, words_in
from tests.plot.test_tables import head

PLACES = [("cross", 0, 0), ("cross", 0, 1), *(("encoder", n, h) for n in (0, 1) for h in (0, 1))]
PARTS = ["0 self", "0 feed forward"]


def test_entropies_are_shaded_by_share_and_written_in_nats():
    kinds = [HeadEntropies(kind, 3 * weights(L, 3), weights(L, 3)) for kind, L in (("encoder", 2), ("cross", 1))]
    figure = draw_entropy_map(kinds)
    maps = figure.axes[0].images
    for image, kind in zip(maps, kinds, strict=True):
        assert_array_equal(image.get_array(), kind.share)
        assert (image.norm.vmin, image.norm.vmax) == (0.0, 1.0)
    seen = words_in(figure)
    assert {f"{nats:.2f}" for kind in kinds for nats in kind.nats.flatten()} <= set(seen)
    assert seen.count("layer 0") == 2 and seen.count("layer 1") == 1
    assert {"encoder", "cross"} <= set(seen)


def test_effects_are_drawn_kind_by_kind_with_a_scale_for_each_measure():
    kinds = [HeadEffects(kind, numbers(2, 3, seed=i), 9 * numbers(2, 3, seed=i + 9)) for i, kind in enumerate("abc")]
    figure = draw_importance_map(kinds)
    maps = figure.axes[0].images
    for kind, loss, bleu in zip(kinds, maps[::2], maps[1::2], strict=True):
        assert_array_equal(loss.get_array(), kind.loss)
        assert_array_equal(bleu.get_array(), kind.bleu)
        assert loss.get_extent()[3] == bleu.get_extent()[3] and loss.get_extent()[1] < bleu.get_extent()[0]
    for measure, found in (("loss", maps[::2]), ("bleu", maps[1::2])):
        top = max(np.abs(getattr(kind, measure)).max() for kind in kinds)
        assert {(image.norm.vmin, image.norm.vmax) for image in found} == {(-top, top)}
    seen = words_in(figure)
    assert {f"{value:+.3f}".replace("-", "−") for value in kinds[0].loss.flatten()} <= set(seen)
    assert {"a: rise of the loss", "c: fall of BLEU"} <= set(seen)


def test_without_bleu_there_is_no_map_of_it():
    figure = draw_importance_map([HeadEffects("cross", numbers(2, 3)), HeadEffects("encoder", numbers(2, 3))])
    assert len(figure.axes[0].images) == 2
    assert not any("BLEU" in text for text in words_in(figure))
    some = draw_importance_map([HeadEffects("a", numbers(2, 3), numbers(2, 3)), HeadEffects("b", numbers(2, 3))])
    assert some.axes[0].images[3].get_array().mask.all()


def test_entropies_stand_beside_the_effects_where_they_are_known():
    looks = HeadEntropies("a", 3 * weights(2, 3), weights(2, 3))
    figure = draw_importance_map([HeadEffects("a", numbers(2, 3), None, looks), HeadEffects("b", numbers(2, 3))])
    loss, spread, _, unknown = figure.axes[0].images
    assert_array_equal(loss.get_array(), numbers(2, 3))
    assert_array_equal(spread.get_array(), looks.share)
    assert (spread.norm.vmin, spread.norm.vmax) == (0.0, 1.0) and unknown.get_array().mask.all()
    assert {f"{nats:.2f}" for nats in looks.nats.flatten()} <= set(words_in(figure))
    assert "a: entropy" in words_in(figure)


def test_a_report_is_drawn_layer_by_layer():
    heads = [head(f"{kind}:{n}:{h}", n + h / 9, None, entropy=1.0, spread=0.5) for kind, n, h in PLACES]
    maps = report_figure(HeadReport(heads[::-1], Quality(1.0, None), 7, 9, 0)).axes[0].images
    assert_array_equal(maps[0].get_array(), [[0, 1 / 9], [1, 1 + 1 / 9]])
    assert_array_equal(maps[1].get_array(), np.full((2, 2), 0.5))
    assert_array_equal(maps[2].get_array(), [[0, 1 / 9]])
    assert len(maps) == 4


def test_norms_are_drawn_over_the_sub_layers_of_each_stream_in_one_scale():
    both = enumerate(("encoder", "decoder"))
    streams = [StreamNorms(name, PARTS, *np.abs(numbers(3, 2, seed=seed)) + 1) for seed, name in both]
    panels = draw_norms(streams).axes
    for axes, stream in zip(panels, streams, strict=True):
        for line, norms in zip(axes.get_lines(), (stream.inputs, stream.updates, stream.outputs), strict=True):
            assert_array_equal(line.get_ydata(), norms)
        assert [label.get_text() for label in axes.get_xticklabels()] == PARTS
        assert axes.get_title(loc="left") == stream.name
    assert panels[0].get_ylim() == panels[1].get_ylim()
    assert panels[0].get_ylim()[0] == 0.0 and panels[0].get_yscale() == "linear"


def test_norms_of_different_orders_have_a_logarithmic_scale_that_is_named():
    norms = np.array([12.0, 300.0])
    figure = draw_norms([StreamNorms("encoder", PARTS, norms, norms, norms)])
    axes = figure.axes[0]
    assert axes.get_yscale() == "log" and "log" in axes.get_ylabel()
    ticks = {text for text, _ in drawn_texts(figure) if any(digit in text for digit in "123456789")}
    assert {"20", "50", "100", "200"} <= ticks <= {"10", "20", "50", "100", "200", "500"}


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: draw_entropy_map([]), "one kind of attention or more, got 0"),
        (lambda: draw_entropy_map([HeadEntropies("a", weights(2, 3), weights(3, 2))]), "got (2, 3) and (3, 2)"),
        (lambda: draw_importance_map([]), "one kind of attention or more, got 0"),
        (lambda: draw_importance_map([HeadEffects("a", weights(2, 3), weights(3, 2))]), "got (2, 3) and (3, 2)"),
        (
            lambda: draw_importance_map(
                [HeadEffects("a", weights(2, 3), None, HeadEntropies("a", weights(3, 2), weights(3, 2)))]
            ),
            "got (2, 3) and (3, 2)",
        ),
        (lambda: draw_norms([]), "one residual stream or more, got 0"),
        (lambda: draw_norms([StreamNorms("a", PARTS, *weights(3, 5))]), "as many as the inputs, got 2 and 5"),
    ],
)
def test_sizes_that_do_not_agree_are_refused(draw, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        draw()
