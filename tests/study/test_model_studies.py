"""Studies of models as figures, tables and pages: what was measured is what is shown."""

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from regard.study.mean_split import draw_mean_split, run_mean_split, shown_pairs, top_pairs
from regard.study.mean_split_page import mean_split_page
from regard.study.probe import draw_position_probe, run_position_probe
from regard.study.probe_page import probe_page
from regard.study.pruning import PruneSettings, draw_pruning, run_pruning
from regard.study.pruning_page import pruning_page
from regard.study.subspaces import SubspaceSettings, draw_subspaces, n_carrying, run_subspaces, sorted_shares
from regard.study.subspaces_page import subspaces_page
from tests.study.models import make_pairs, translator_with
from tests.study.test_probe import SETTINGS

PAIRS = make_pairs(40)
RUNS = {
    "probe": (lambda model: run_position_probe("random", model, PAIRS, SETTINGS), draw_position_probe, probe_page),
    "subspaces": (
        lambda model: run_subspaces("random", model, PAIRS, SubspaceSettings(draws=3, tops=(3,))),
        draw_subspaces,
        subspaces_page,
    ),
    "mean split": (lambda model: run_mean_split("random", model, PAIRS), draw_mean_split, mean_split_page),
    "pruning": (
        lambda model: run_pruning("random", model, PAIRS[:8], PruneSettings(3, 1)),
        draw_pruning,
        pruning_page,
    ),
}


@pytest.fixture(scope="module")
def studies():
    return {name: run(translator_with()) for name, (run, _, _) in RUNS.items()}


def cells(table):
    return [list(row) for row in zip(*(column.cells for column in table.columns), strict=True)]


def words(figure):
    figure.draw_without_rendering()
    return " ".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("name", RUNS)
def test_each_study_is_drawn_and_told(name, studies):
    _, draw, tell = RUNS[name]
    shown, story = words(draw(studies[name])), tell(studies[name])
    assert "encoder" in shown
    assert story.findings and all(line.endswith(".") for line in [*story.findings, *story.method])
    assert all(table.row_count for table in story.tables)
    assert not any("nan" in str(cell) for table in story.tables for row in cells(table) for cell in row)


@pytest.mark.parametrize("name", ["subspaces", "mean split"])
def test_a_scheme_without_codes_is_drawn_and_told_too(name):
    run, draw, tell = RUNS[name]
    study = run(translator_with(scheme="rotary", attention="dot"))
    said = " ".join(tell(study).findings)
    assert "encoder" in words(draw(study))
    assert "rotary puts no codes into the stream" in said or name != "subspaces"


def test_probe_tables_hold_the_numbers(studies):
    study = studies["probe"]
    stream, updates, small = probe_page(study).tables
    rows = {(row[0], row[1]): row[2] for row in cells(stream)}
    place = study.stacks[0].points[1].place
    assert rows["encoder", "layer 0"] == f"{place.mean:.2f} ± {place.spread:.2f}".replace("-", "−")
    assert ("decoder", "codes alone") in rows and len(rows) == 2 * 2 + 3 + 2
    assert updates.row_count == 4 + 3
    assert [column.header for column in small.columns][2:4] == ["with", "without"]
    assert cells(small)[-1][1] == "loss" and small.row_count == 3 + 2 + 1


def test_probe_figures_draw_the_stream(studies):
    study = studies["probe"]
    figure = draw_position_probe(study)
    drawn = [line.get_ydata() for line in figure.axes[0].lines if len(line.get_ydata()) == 3]
    expected = [reading.place.mean for reading in study.stacks[0].points]
    assert any(np.array_equal(each, np.maximum(expected, -0.25)) for each in drawn)


def test_features_are_sorted_where_the_stream_begins(studies):
    shares = sorted_shares(studies["subspaces"].stacks[0])
    assert bool((shares[0, 1:] <= shares[0, :-1]).all())
    assert shares.shape == (3, 22)


def test_few_features_may_carry_half():
    assert n_carrying(torch.tensor([0.1, 0.9, -0.5, 0.2])) == 1
    assert n_carrying(torch.full((10,), 0.3)) == 5


def test_pairs_of_a_layer_are_means_over_its_heads(studies):
    layer = studies["mean split"].layers[0]
    name, share = top_pairs(layer)[0]
    assert share == pytest.approx(sum(dict(head.ranked())[name] for head in layer.heads) / 2)
    names = shown_pairs(layer.heads)
    assert all(max(abs(dict(head.ranked())[each]) for head in layer.heads) >= 0.1 for each in names)


def test_pruning_tells_at_how_many_heads_a_point_is_lost(studies):
    study = studies["pruning"]
    said = pruning_page(study).findings[0]
    assert f"of 8 heads, {study.curves[0].enough()} keep BLEU within 1 point of {study.whole.bleu:.1f}" in said
    table = pruning_page(study).tables[0]
    assert [row[0] for row in cells(table)] == ["8", "4", "0"]
