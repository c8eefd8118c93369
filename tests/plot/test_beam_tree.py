"""The tree of a beam search: where its nodes stand, and how they look."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from regard.plot.beam_tree import (
    ENDED,
    INKS,
    PAGE,
    BeamTree,
    break_steps,
    draw_beam_tree,
    lay_band,
    path_to,
    rows,
    steps,
)
from regard.plot.style import COLOURS
from tests.plot.seen import words_in

#  in ── tro ── </s>
#  │      └─ duce
#  └─ 介绍
TREE = BeamTree(
    ["in", "介绍", "tro", "duce", "</s>"],
    [None, None, 0, 0, 2],
    np.log([0.5, 0.001, 0.25, 0.125, 0.2]),
    ["kept", "dropped", "kept", "dropped", "ended"],
    4,
)


@st.composite
def trees(draw):
    """Draws the parents of a tree, and a node of it."""
    parents = [None]
    for node in range(1, draw(st.integers(1, 40))):
        parents.append(draw(st.none() | st.integers(0, node - 1)))
    return parents, draw(st.integers(0, len(parents) - 1))


@given(trees())
def test_no_two_nodes_share_a_place_and_no_two_branches_cross(tree):
    parents, best = tree
    path = path_to(best, parents)
    row, step = rows(parents, path), steps(parents)
    assert min(row) == 0
    assert len(set(zip(step, row, strict=True))) == len(parents)
    assert len({row[node] for node in path}) == 1
    for at in range(max(step) + 1):
        level = sorted((node for node in range(len(parents)) if step[node] == at), key=lambda node: row[node])
        above = [row[parents[node]] for node in level if parents[node] is not None]
        assert above == sorted(above)


def test_a_branch_takes_no_row_that_another_has_left():
    """A long chain that drops one word at each step needs two rows, however long it is."""
    parents = [None, None]
    for step in range(9):
        parents += [2 * step, 2 * step]
    assert max(rows(parents, path_to(18, parents))) == 1


def test_children_stand_in_their_order():
    parents = [None, 0, 0, 0]
    for best in (1, 2, 3):
        found = rows(parents, path_to(best, parents))
        assert found[1:] == [0, 1, 2] and found[0] == found[best]


@given(trees(), st.integers(1, 4))
def test_bands_show_each_node_once_and_what_goes_on_twice(tree, page):
    parents, best = tree
    path, step = path_to(best, parents), steps(parents)
    bands = break_steps([1.0] * (max(step) + 1), float(page))
    laid = [lay_band(parents, path, band) for band in bands]
    begins = {band.start for band in bands[1:]}
    for node in range(len(parents)):
        again = step[node] in begins and node in parents
        assert sum(node in rows_of for rows_of in laid) == 1 + again
    for rows_of in laid:
        assert len({(step[node], row) for node, row in rows_of.items()}) == len(rows_of)
        assert min(rows_of.values()) == 0
        assert len({rows_of[node] for node in path if node in rows_of}) <= 1


def test_bands_are_as_wide_as_the_page_allows():
    assert break_steps([1.0] * 6, 3.0) == [range(3), range(2, 5), range(4, 6)]
    assert break_steps([1.0, 1.0], 3.0) == [range(2)]
    assert break_steps([9.0, 9.0, 9.0], 3.0) == [range(2), range(1, 3)]


def test_a_long_search_goes_on_below_even_after_the_best_has_ended():
    n = 40
    chain = BeamTree(["Statistics"] * n, [None, *range(n - 1)], -np.arange(1.0, n + 1), ["kept"] * n, 3)
    figure = draw_beam_tree(chain)
    assert figure.get_size_inches()[0] < PAGE + 2
    found = [text.get_position() for text in figure.axes[0].texts if text.get_text() == "Statistics"]
    n_bands = len({y for _, y in found})
    assert n_bands > 1 and len(found) == n + n_bands - 1
    assert f"step {n}" in words_in(figure)


def texts(figure):
    return {text.get_text(): text for text in figure.axes[0].texts}


def test_each_node_has_its_token_its_chance_and_an_end_the_whole():
    seen = words_in(draw_beam_tree(TREE))
    assert {"in", "tro", "duce", "</s>", "介绍", "step 1", "step 3"} <= set(seen)
    assert {"50%", "<1%", "25%", "80%, log p −1.61"} <= set(seen)
    assert "step 4" not in seen


def test_the_best_path_is_straight_and_kept_ended_and_dropped_look_different():
    figure = draw_beam_tree(TREE)
    at = texts(figure)
    assert len({at[token].get_position()[1] for token in ("in", "tro", "</s>")}) == 1
    assert at["in"].get_position()[0] < at["tro"].get_position()[0] < at["</s>"].get_position()[0]
    assert {to_hex(at[token].get_color()) for token in ("in", "tro", "</s>")} == {COLOURS[0].lower()}
    assert all(at[token].get_path_effects() for token in ("in", "tro", "</s>"))
    assert to_hex(at["duce"].get_color()) == INKS["dropped"]
    assert len({INKS["best"], INKS["kept"], INKS["dropped"]}) == 3
    assert sum(to_hex(patch.get_facecolor()) == ENDED for patch in figure.axes[0].patches) == 2  # the end, and the key


def test_each_node_hangs_on_its_parent_by_one_branch():
    figure = draw_beam_tree(TREE)
    at = texts(figure)
    looks = dict(zip(("dropped", "ended", "kept", "best"), figure.axes[0].collections, strict=True))
    assert {look: len(lines.get_segments()) for look, lines in looks.items()} == {
        "dropped": 2,
        "ended": 0,
        "kept": 0,
        "best": 3,
    }
    assert looks["best"].get_linewidths()[0] > 2 * looks["kept"].get_linewidths()[0]
    stub = max(looks["dropped"].get_segments(), key=lambda line: line[-1, 0])  # that of the second step
    assert stub[-1, 1] == at["duce"].get_position()[1]
    assert stub[0, 1] == at["in"].get_position()[1]
    assert looks["best"].get_segments()[-1][0, 0] > at["tro"].get_position()[0]
    assert at["in"].get_position()[0] < stub[0, 0] and stub[-1, 0] < at["duce"].get_position()[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": ["a"]}, "tokens must be as many as the totals, got 1 and 5"),
        ({"parents": [None]}, "parents must be as many as the totals, got 1 and 5"),
        ({"fates": ["kept"]}, "fates must be as many as the totals, got 1 and 5"),
        ({"parents": [None, None, 0, 3, 2]}, "a parent must stand before its children, got 3 as the parent of 3"),
        ({"fates": ["kept", "lost", "kept", "kept", "ended"]}, "one of kept, ended, dropped, got 'lost'"),
        ({"best": 5}, "best must be one of the 5 nodes, got 5"),
    ],
)
def test_a_tree_that_is_none_is_refused(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        draw_beam_tree(replace(TREE, **change))
