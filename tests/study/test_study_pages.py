"""Figures, tables and pages of the studies of complexity, extrapolation and ablation, from numbers made up here."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest
from rich.table import Table
from rich.text import Text

from regard.study.ablate_page import FIELDS, ablation_page
from regard.study.ablate_page import findings as ablation_findings
from regard.study.ablation import ablate_table, draw_ablation, failures, mean_curve, sum_up
from regard.study.ablation_runs import Row
from regard.study.complexity import (
    SETTINGS,
    ComplexityStudy,
    LayerReport,
    Point,
    complexity_tables,
    draw_complexity,
    laws_table,
    make_curve,
    sizes_table,
)
from regard.study.complexity_layers import LAYERS, WAYS, Depth, Pace
from regard.study.complexity_page import complexity_page
from regard.study.complexity_page import findings as complexity_findings
from regard.study.extrapolate import ExtrapolateSettings, Judged, Trained, draw_extrapolate, extrapolate_table
from regard.study.extrapolate import sum_up as sum_up_lengths
from regard.study.extrapolate_page import extrapolate_page
from regard.study.page import check_page, markdown_table, page_text, write_page
from regard.study.timing import Timing
from tests.study.test_ablation import ROTARY, plan, row


def planted_curve(name, axis):
    """Gives times that follow the theory exactly: a picosecond an operation."""
    points = []
    for size in (64, 128, 256, 512):
        n, d = (size, 32) if axis == "n" else (32, size)
        operations = LAYERS[name].operations(n, d, 3)
        time = Timing(operations * 1e-12, operations * 0.9e-12, operations * 1.2e-12)
        points.append(Point(n, d, 1, operations, time, 2**20 * n))
    return make_curve(name, axis, points, 4)


@pytest.fixture(scope="module")
def complexity():
    layers = [
        LayerReport(name, law.formula, law.steps, law.path, [Depth(8, 1, 3)], *(planted_curve(name, a) for a in "nd"))
        for name, law in LAYERS.items()
    ]
    settings = SETTINGS["cpu"]
    speeds = zip(WAYS, (1000.0, 100.0, 500.0), strict=True)
    paces = [Pace(way, n, 4, v, v / 2, v * 2) for way, v in speeds for n in settings.race.lengths]
    return ComplexityStudy(settings, "cpu", "float32", layers, paces, {"seed": 0, "machine": "mine"})


@pytest.fixture(scope="module")
def lengths():
    def judged(length, loss):
        return Judged(length, loss, 0.5, 0.25, [loss] * length)

    far = [Trained("t5", seed, [judged(4 * n, 0.5 * n) for n in (1, 2, 3, 4)], {}) for seed in (0, 1)]
    near = [Trained("learned", seed, [judged(4, 1.0)], {8: "the table ends"}) for seed in (0, 1)]
    return sum_up_lengths([*far, *near], ExtrapolateSettings(longest=4, n_seeds=2), {"seed": 0})


@pytest.fixture(scope="module")
def ablation():
    made = plan(ROTARY, {"name": "x", "part": "norm", "set": ["model.norm=rms"]}, seeds=(0, 1))
    curve = [{"step": 4, "loss": 2.0}, {"step": 8, "loss": 1.0}]
    rows = [row(seed=seed, bleu=10.0 + seed, curve=curve) for seed in (0, 1)]
    rows += [row("rotary", seed, 20.0 + seed, part="position", curve=curve) for seed in (0, 1)]
    rows += [Row("x", "norm", [], 0, "d", error="ValueError: no")]
    return made, sum_up(made, rows)


def cells(table):
    return [list(column.cells) for column in table.columns]


def test_the_complexity_figure_draws_times_fits_memory_and_paces(complexity):
    by_n, by_d, memory, pace = draw_complexity(complexity).axes
    for axes, axis in ((by_n, "n"), (by_d, "d")):
        for at, layer in enumerate(complexity.layers):
            curve = layer.by_n if axis == "n" else layer.by_d
            drawn = axes.get_lines()[2 * at]
            assert list(drawn.get_xdata()) == [getattr(point, axis) for point in curve.points]
            assert list(drawn.get_ydata()) == [point.time.median for point in curve.points]
    assert list(memory.get_lines()[0].get_ydata()) == [64, 128, 256, 512]
    assert [line.get_label() for line in pace.get_lines()] == list(WAYS)


def test_the_laws_table_has_what_was_fitted_and_what_the_theory_says(complexity):
    columns = cells(laws_table(complexity))
    assert columns[0] == list(LAYERS)
    assert columns[2][:3] == ["2.00 (2)", "1.00 (1)", "1.00 (1)"]
    assert columns[3][:3] == ["2.00", "1.00", "1.00"]
    assert columns[6][:3] == ["1.00", "2.00", "2.00"]
    assert columns[8][:3] == ["3 (1)", "3 (n)", "3 (n/k)"]
    sizes = cells(sizes_table(complexity, "d"))
    assert sizes[-1] == ["64 … 512"] * len(LAYERS)
    assert len(complexity_tables(complexity)) == 4


def test_a_size_that_a_layer_sat_out_is_a_dash(complexity):
    first = complexity.layers[0]
    short = replace(first, by_n=replace(first.by_n, points=first.by_n.points[:2]))
    columns = cells(sizes_table(replace(complexity, layers=[short, *complexity.layers[1:]]), "n"))
    assert [column[0] for column in columns[3:5]] == ["–", "–"]


def test_findings_tell_what_is_off(complexity):
    said = complexity_findings(complexity)
    assert "recurrence: time grows as n^1.00 (within 0.15 of the theory: 1) and d^2.00" in said[1]
    assert "10.0 times as fast as the same model step by step, and 2.0 times as fast as the GRU" in said[-1]
    layer = complexity.layers[0]
    off = replace(layer, by_n=replace(layer.by_n, time=replace(layer.by_n.time, exponent=1.5)))
    assert (
        "n^1.50 (off by 0.50: 2)" in complexity_findings(replace(complexity, layers=[off, *complexity.layers[1:]]))[0]
    )


def test_the_extrapolation_figure_and_table_have_ratios_and_ends(lengths):
    ratios, places = draw_extrapolate(lengths).axes
    labels = ratios.get_legend_handles_labels()[1]
    assert labels == ["t5", "learned (ends at 1n)"]
    assert np.allclose(ratios.containers[0].lines[0].get_ydata(), [1, 2, 3, 4])
    assert len(places.get_lines()[0].get_ydata()) == 16
    columns = cells(extrapolate_table(lengths))
    assert columns[2] == ["1.000 ± 0.000 · ×2.00 · 50%", "not defined"]


def test_the_ablation_figure_sorts_variants_and_draws_curves(ablation):
    bars, curves = draw_ablation(ablation[1]).axes
    assert [label.get_text() for label in bars.get_yticklabels()] == ["baseline", "rotary"]
    assert list(curves.get_lines()[0].get_ydata()) == [2.0, 1.0]
    assert [text.get_text() for text in curves.get_legend().get_texts()] == [
        "baseline",
        "position",
    ]  # none of what failed
    assert mean_curve(ablation[1].rows[:2]) == [(4, 2.0), (8, 1.0)]


def test_the_ablation_table_marks_what_is_beyond_chance_and_what_failed(ablation):
    columns = cells(ablate_table(ablation[1]))
    assert columns[1] == ["baseline", "rotary", "x"]
    assert columns[2] == ["10.50 ± 0.71", "20.50 ± 0.71", "failed"]
    assert columns[3] == ["–", "+10.00*", "–"]
    assert failures(ablation[1]) == ["x, seed 0: ValueError: no"]
    assert "2 runs are missing" in ablate_table(ablation[1]).caption


def test_the_ablation_says_whether_all_learned_from_the_same_text(ablation):
    assert ablate_table(ablation[1]).title.startswith("Same data, same budget, one part")
    assert ablate_table(replace(ablation[1], same_data=False)).title.startswith("Same budget, one part")


def test_seeds_that_failed_alike_are_told_of_together():
    made = plan(ROTARY, seeds=(0, 1, 2))
    failing = [
        Row("rotary", "position", [], seed, "d", error=error) for seed, error in ((2, "no"), (0, "no"), (1, "odd"))
    ]
    found = sum_up(made, [row(), *failing])
    assert failures(found) == ["rotary, seeds 0, 2: no", "rotary, seed 1: odd"]


def test_findings_judge_bleu_and_loss_each_by_itself():
    made = plan(ROTARY, {"name": "x-y", "set": ["model.norm=rms"]}, seeds=(0, 1, 2))
    rows = [row(seed=seed, bleu=10.0 + seed, loss=2.0 + seed / 100) for seed in (0, 1, 2)]
    rows += [row("rotary", seed, 10.5 + seed, loss=1.0 + seed / 100) for seed in (0, 1, 2)]
    rows += [row("x-y", seed, 1.0 + seed, loss=3.0 + seed / 100) for seed in (0, 1, 2)]
    better, worse, lower, higher, within = ablation_findings(sum_up(made, rows))
    assert better.endswith("chance: none.")
    assert worse.endswith("chance: x-y (−9.00).")
    assert lower.endswith("chance: rotary (−1.000).")
    assert higher.endswith("chance: x-y (+1.000).")
    assert within.endswith("seeds: none.")


def test_every_field_of_a_row_is_documented():
    assert list(FIELDS) == [each.name for each in fields(Row)]


def test_tables_become_markdown_as_they_stand():
    table = Table(title="t")
    table.add_column("opera-\ntions")
    table.add_column("two\nlines", justify="right")
    table.add_row("a|b", Text("1"))
    assert markdown_table(table) == "| operations | two lines |\n| --- | ---: |\n| a\\|b | 1 |"


def test_pages_have_question_picture_command_numbers_signature_and_findings(complexity, lengths, ablation, tmp_path):
    made, found = ablation
    pages = {
        "complexity": (complexity_page(complexity, "regard study complexity"), draw_complexity(complexity)),
        "extrapolate": (extrapolate_page(lengths, "regard study extrapolate"), draw_extrapolate(lengths)),
        "ablation": (ablation_page(found, made, "regard study ablate", "About."), draw_ablation(found)),
    }
    for name, (page, figure) in pages.items():
        path = tmp_path / f"{name}.md"
        write_page(page, figure, path)
        text = path.read_text(encoding="utf-8")
        assert (tmp_path / "images" / f"{name}.png").stat().st_size > 1000
        assert text == page_text(page, f"images/{name}.png")
        for part in (f"# {page.title}", page.question, f"(images/{name}.png)", f"\n{page.command}\n", "Signature: "):
            assert part in text
        assert all(line in text for line in (*page.method, *page.findings))
        assert all(" ".join(table.caption.split()) in text for table in page.tables if table.caption)
        assert text.count("\n| ") == len(re.findall(r"^\| ", text, flags=re.MULTILINE))


def test_remarks_by_hand_stay_on_a_page_that_is_written_again(ablation, tmp_path):
    made, found = ablation
    path, page = tmp_path / "ablation.md", ablation_page(found, made, "regard study ablate", "About.")
    write_page(page, draw_ablation(found), path)
    first = path.read_text(encoding="utf-8")
    path.write_text(first.replace("About.", "Old.") + "\n## Remarks\n\nBy hand.\n", encoding="utf-8")
    for _ in range(2):
        write_page(page, draw_ablation(found), path)
        assert path.read_text(encoding="utf-8") == first + "\n## Remarks\n\nBy hand.\n"


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_computed(tmp_path):
    check_page(None)
    with pytest.raises(ValueError, match=r"must end in \.md, got 'page.txt'"):
        check_page(tmp_path / "page.txt")
    with pytest.raises(ValueError, match=r"the folder for 'page\.md' does not exist"):
        check_page(tmp_path / "none" / "page.md")
