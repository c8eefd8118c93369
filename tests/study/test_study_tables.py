"""Figures and tables of the studies of complexity, extrapolation and ablation, from numbers made up here."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from regard.study import ablate, extrapolate
from regard.study import complexity as complexity_study
from regard.study.ablate import failures, mean_curve, summarise
from regard.study.ablate_runs import AblationRow
from regard.study.complexity import (
    SETTINGS,
    ComplexityStudy,
    LayerReport,
    LayerTiming,
    laws_table,
    make_curve,
    sizes_table,
)
from regard.study.complexity_layers import LAYERS, WAYS, Depth, Throughput
from regard.study.extrapolate import ExtrapolateSettings, LengthResult, TrainedEncoding
from regard.study.timing import Timing
from tests.study.test_ablate import ROTARY, plan, row

DOCS = Path(__file__).parents[2] / "docs" / "studies"


def planted_curve(name, axis):
    """Gives times that follow the theory exactly: a picosecond an operation."""
    points = []
    for size in (64, 128, 256, 512):
        n, d = (size, 32) if axis == "n" else (32, size)
        operations = LAYERS[name].operations(n, d, 3)
        time = Timing(operations * 1e-12, operations * 0.9e-12, operations * 1.2e-12)
        points.append(LayerTiming(n, d, 1, operations, time, 2**20 * n))
    return make_curve(name, axis, points, 4)


@pytest.fixture(scope="module")
def complexity():
    layers = [
        LayerReport(name, law.formula, law.steps, law.path, [Depth(8, 1, 3)], *(planted_curve(name, a) for a in "nd"))
        for name, law in LAYERS.items()
    ]
    settings = SETTINGS["cpu"]
    by_way = zip(WAYS, (1000.0, 100.0, 500.0), strict=True)
    speeds = [Throughput(way, n, 4, v, v / 2, v * 2) for way, v in by_way for n in settings.training.lengths]
    return ComplexityStudy(settings, "cpu", "float32", layers, speeds, {"seed": 0, "machine": "mine"})


@pytest.fixture(scope="module")
def lengths():
    def result(length, loss):
        return LengthResult(length, loss, 0.5, 0.25, [loss] * length)

    far = [TrainedEncoding("t5", seed, [result(4 * n, 0.5 * n) for n in (1, 2, 3, 4)], {}) for seed in (0, 1)]
    near = [TrainedEncoding("learned", seed, [result(4, 1.0)], {8: "the table ends"}) for seed in (0, 1)]
    return extrapolate.summarise([*far, *near], ExtrapolateSettings(longest=4, n_seeds=2), {"seed": 0})


@pytest.fixture(scope="module")
def ablation():
    made = plan(ROTARY, {"name": "x", "part": "norm", "set": ["model.norm=rms"]}, seeds=(0, 1))
    curve = [{"step": 4, "loss": 2.0}, {"step": 8, "loss": 1.0}]
    rows = [row(seed=seed, bleu=10.0 + seed, curve=curve) for seed in (0, 1)]
    rows += [row("rotary", seed, 20.0 + seed, part="position", curve=curve) for seed in (0, 1)]
    rows += [AblationRow("x", "norm", [], 0, "d", error="ValueError: no")]
    return made, summarise(made, rows)


def cells(table):
    return [list(column.cells) for column in table.columns]


def test_the_complexity_figure_draws_times_fits_memory_and_training(complexity):
    by_n, by_d, memory, training = complexity_study.figure(complexity).axes
    for axes, axis in ((by_n, "n"), (by_d, "d")):
        for at, layer in enumerate(complexity.layers):
            curve = layer.by_n if axis == "n" else layer.by_d
            drawn = axes.get_lines()[2 * at]
            assert list(drawn.get_xdata()) == [getattr(point, axis) for point in curve.points]
            assert list(drawn.get_ydata()) == [point.time.median for point in curve.points]
    assert list(memory.get_lines()[0].get_ydata()) == [64, 128, 256, 512]
    assert [line.get_label() for line in training.get_lines()] == list(WAYS)


def test_the_laws_table_has_what_was_fitted_and_what_the_theory_says(complexity):
    columns = cells(laws_table(complexity))
    assert columns[0] == list(LAYERS)
    assert columns[2][:3] == ["2.00 (2)", "1.00 (1)", "1.00 (1)"]
    assert columns[3][:3] == ["2.00", "1.00", "1.00"]
    assert columns[6][:3] == ["1.00", "2.00", "2.00"]
    assert columns[8][:3] == ["3 (1)", "3 (n)", "3 (n/k)"]
    sizes = cells(sizes_table(complexity, "d"))
    assert sizes[-1] == ["64 … 512"] * len(LAYERS)
    assert list(complexity_study.tables(complexity)) == ["laws", "time-over-n", "time-over-d", "training"]


def test_a_size_that_a_layer_sat_out_is_a_dash(complexity):
    first = complexity.layers[0]
    short = replace(first, by_n=replace(first.by_n, points=first.by_n.points[:2]))
    columns = cells(sizes_table(replace(complexity, layers=[short, *complexity.layers[1:]]), "n"))
    assert [column[0] for column in columns[3:5]] == ["–", "–"]


def test_an_exponent_that_is_off_stands_beside_the_theory(complexity):
    layer = complexity.layers[0]
    off = replace(layer, by_n=replace(layer.by_n, time=replace(layer.by_n.time, exponent=1.5)))
    columns = cells(laws_table(replace(complexity, layers=[off, *complexity.layers[1:]])))
    assert (columns[2][0], columns[3][0]) == ("2.00 (2)", "1.50")


def test_training_speeds_are_listed_by_way_and_length(complexity):
    columns = cells(complexity_study.tables(complexity)["training"])
    assert columns[0] == list(WAYS)
    assert columns[-1] == ["1,000", "100", "500"]


def test_the_extrapolation_figure_and_table_have_ratios_and_ends(lengths):
    ratios, positions = extrapolate.figure(lengths).axes
    labels = ratios.get_legend_handles_labels()[1]
    assert labels == ["t5", "learned (ends at 1n)"]
    assert np.allclose(ratios.containers[0].lines[0].get_ydata(), [1, 2, 3, 4])
    assert len(positions.get_lines()[0].get_ydata()) == 16
    columns = cells(extrapolate.tables(lengths)["losses"])
    assert columns[2] == ["1.000 ± 0.000 · ×2.00 · 50%", "not defined"]


def test_the_ablation_figure_sorts_variants_and_draws_curves(ablation):
    bars, curves = ablate.figure(ablation[1]).axes
    assert [label.get_text() for label in bars.get_yticklabels()] == ["baseline", "rotary"]
    assert list(curves.get_lines()[0].get_ydata()) == [2.0, 1.0]
    assert [text.get_text() for text in curves.get_legend().get_texts()] == [
        "baseline",
        "position",
    ]  # none of what failed
    assert mean_curve(ablation[1].rows[:2]) == [(4, 2.0), (8, 1.0)]


def test_the_ablation_table_marks_what_is_significant_and_what_failed(ablation):
    columns = cells(ablate.tables(ablation[1])["variants"])
    assert columns[1] == ["baseline", "rotary", "x"]
    assert columns[2] == ["10.50 ± 0.71", "20.50 ± 0.71", "failed"]
    assert columns[3] == ["–", "+10.00*", "–"]
    assert failures(ablation[1]) == ["x, seed 0: ValueError: no"]
    assert "2 runs are missing" in ablate.tables(ablation[1])["variants"].caption


def test_the_ablation_says_whether_all_learned_from_the_same_text(ablation):
    assert ablate.tables(ablation[1])["variants"].title.startswith("Same data, same budget, one part")
    assert ablate.tables(replace(ablation[1], same_data=False))["variants"].title.startswith("Same budget, one part")


def test_seeds_that_failed_alike_are_told_of_together():
    made = plan(ROTARY, seeds=(0, 1, 2))
    failing = [
        AblationRow("rotary", "position", [], seed, "d", error=error)
        for seed, error in ((2, "no"), (0, "no"), (1, "odd"))
    ]
    found = summarise(made, [row(), *failing])
    assert failures(found) == ["rotary, seeds 0, 2: no", "rotary, seed 1: odd"]


def test_bleu_and_loss_are_each_judged_by_themselves():
    made = plan(ROTARY, {"name": "x-y", "set": ["model.norm=rms"]}, seeds=(0, 1, 2))
    rows = [row(seed=seed, bleu=10.0 + seed, loss=2.0 + seed / 100) for seed in (0, 1, 2)]
    rows += [row("rotary", seed, 10.5 + seed, loss=1.0 + seed / 100) for seed in (0, 1, 2)]
    rows += [row("x-y", seed, 1.0 + seed, loss=3.0 + seed / 100) for seed in (0, 1, 2)]
    columns = cells(ablate.tables(summarise(made, rows))["variants"])
    assert columns[1] == ["baseline", "rotary", "x-y"]
    assert columns[3] == ["–", "+0.50", "−9.00*"]
    assert columns[5] == ["–", "−1.000*", "+1.000*"]


def test_every_field_of_a_row_is_documented():
    (page,) = DOCS.glob("ablat*.md")
    listed = [line.split("`")[1] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert listed == [each.name for each in fields(AblationRow)]


def test_the_signature_has_the_seeds_of_all_runs(ablation):
    made, found = ablation
    assert ablate.common_signature(found, made)["seed"] == "0, 1"
