"""Studies of models as figures and tables: what was measured is what is shown."""

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from regard.study import heads, mean_split, position_probe, subspaces
from regard.study.heads import PruningSettings
from regard.study.mean_split import shown_pairs, top_pairs
from regard.study.subspaces import SubspaceSettings, n_carrying, sorted_shares
from tests.study.models import make_pairs, translator_with
from tests.study.test_position_probe import SETTINGS

PAIRS = make_pairs(40)
RUNS = {
    position_probe: lambda model: position_probe.run("random", model, PAIRS, SETTINGS),
    subspaces: lambda model: subspaces.run("random", model, PAIRS, SubspaceSettings(draws=3, tops=(3,))),
    mean_split: lambda model: mean_split.run("random", model, PAIRS),
    heads: lambda model: heads.run("random", model, PAIRS[:8], PruningSettings(3, 1)),
}


@pytest.fixture(scope="module")
def studies():
    return {study: run(translator_with()) for study, run in RUNS.items()}


def cells(table):
    return [list(row) for row in zip(*(column.cells for column in table.columns), strict=True)]


def words(figure):
    figure.draw_without_rendering()
    return " ".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("study", RUNS)
def test_each_study_is_drawn_and_listed(study, studies):
    shown, tables = words(study.figure(studies[study])), study.tables(studies[study]).values()
    assert "encoder" in shown
    assert tables and all(table.row_count for table in tables)
    assert not any("nan" in str(cell) for table in tables for row in cells(table) for cell in row)


@pytest.mark.parametrize("study", [subspaces, mean_split])
def test_an_encoding_without_codes_is_drawn_and_listed_too(study):
    result = RUNS[study](translator_with(scheme="rotary", attention="dot"))
    assert "encoder" in words(study.figure(result))
    tables = study.tables(result)
    assert study is mean_split or list(tables) == ["stream"]
    assert study is mean_split or "rotary adds no codes to the stream" in tables["stream"].caption


def test_probe_tables_hold_the_numbers(studies):
    study = studies[position_probe]
    stream, updates, small = position_probe.tables(study).values()
    rows = {(row[0], row[1]): row[2] for row in cells(stream)}
    position = study.stacks[0].points[1].position
    assert rows["encoder", "layer 0"] == f"{position.mean:.2f} ± {position.std:.2f}".replace("-", "−")
    assert ("decoder", "codes alone") in rows and len(rows) == 2 * 2 + 3 + 2
    assert updates.row_count == 4 + 3
    assert [column.header for column in small.columns][2:4] == ["with", "without"]
    assert cells(small)[-1][1] == "loss" and small.row_count == 3 + 2 + 1


def test_probe_figures_draw_the_stream(studies):
    study = studies[position_probe]
    drawing = position_probe.figure(study)
    drawn = [line.get_ydata() for line in drawing.axes[0].lines if len(line.get_ydata()) == 3]
    expected = [score.position.mean for score in study.stacks[0].points]
    assert any(np.array_equal(each, np.maximum(expected, -0.25)) for each in drawn)


def test_features_are_sorted_where_the_stream_begins(studies):
    shares = sorted_shares(studies[subspaces].stacks[0])
    assert bool((shares[0, 1:] <= shares[0, :-1]).all())
    assert shares.shape == (3, 22)


def test_few_features_may_carry_half():
    assert n_carrying(torch.tensor([0.1, 0.9, -0.5, 0.2])) == 1
    assert n_carrying(torch.full((10,), 0.3)) == 5


def test_pairs_of_a_layer_are_means_over_its_heads(studies):
    layer = studies[mean_split].layers[0]
    name, share = top_pairs(layer)[0]
    assert share == pytest.approx(sum(dict(head.ranked())[name] for head in layer.heads) / 2)
    names = shown_pairs(layer.heads)
    assert all(max(abs(dict(head.ranked())[each]) for head in layer.heads) >= 0.1 for each in names)


def test_the_heads_table_says_how_many_heads_keep_bleu(studies):
    study = studies[heads]
    table = heads.tables(study)["quality"]
    assert f"{study.curves[0].enough()} heads keep BLEU within 1 point of {study.whole.bleu:.1f}" in table.caption
    assert [row[0] for row in cells(table)] == ["8", "4", "0"]
