"""What the figures of weights and scores show, compared with the arrays behind them."""

import re

import numpy as np
import pytest
from matplotlib.colors import to_hex
from numpy.testing import assert_array_equal

from regard.plot.head_maps import HeadWeights, draw_head_grid, draw_one_head, draw_term_maps, entropies, sum_error
from regard.plot.heatmap import NOTHING, pooled, score_scale, weight_scale
from regard.plot.style import COLOURS
from regard.plot.words import FAINTEST, draw_alignment, draw_answer, draw_head_lines, draw_word_attention
from regard.terminal import readable
from tests.plot.figures import SRC, TGT, numbers, weights, words
from tests.plot.seen import words_in


def images(figure):
    return figure.axes[0].images


def rectangles(figure, colour):
    """Gives the patches with an edge of a colour."""
    return [patch for patch in figure.axes[0].patches if to_hex(patch.get_edgecolor()) == colour.lower()]


def places(patches, box):
    """Gives the column and the row of the cell in which the middle of each patch lies, the box having 4 × 5 cells."""
    left, right, bottom, top = box.get_extent()
    middles = [(p.get_x() + p.get_width() / 2, p.get_y() + p.get_height() / 2) for p in patches]
    return [(int((x - left) / (right - left) * 4), int((y - top) / (bottom - top) * 5)) for x, y in middles]


def test_a_grid_draws_each_head_of_each_kind_in_its_row_and_column():
    kinds = [
        HeadWeights("cross", weights(2, 3, 5, 4), TGT, SRC),
        HeadWeights("encoder", weights(1, 2, 4, 4, seed=1), SRC, SRC),
    ]
    figure = draw_head_grid(kinds)
    maps = images(figure)
    assert len(maps) == 8
    for image, expected in zip(maps, [*kinds[0].weights.reshape(-1, 5, 4), *kinds[1].weights[0]], strict=True):
        assert_array_equal(image.get_array(), expected)
    lefts, tops = zip(*((image.get_extent()[0], image.get_extent()[3]) for image in maps[:6]), strict=True)
    assert lefts[:3] == lefts[3:] and list(lefts[:3]) == sorted(set(lefts))
    assert len(set(tops)) == 2 and tops[0] < tops[3]
    assert {"cross", "encoder", "head 2", "layer 1", "·Introduce", "西安"} <= set(words_in(figure))


def test_all_maps_of_a_grid_share_one_scale_from_0_to_the_largest():
    kinds = [
        HeadWeights("a", weights(1, 1, 4, 4) / 2, SRC, SRC),
        HeadWeights("b", weights(1, 2, 4, 4, seed=1), SRC, SRC),
    ]
    maps = images(draw_head_grid(kinds))
    assert len({id(image.norm) for image in maps}) == 1
    assert (maps[0].norm.vmin, maps[0].norm.vmax) == (0.0, max(kind.weights.max() for kind in kinds))


def test_words_that_do_not_fit_are_left_out_of_a_grid():
    large = draw_head_grid([HeadWeights("a", weights(1, 16, 60, 60), words(60), words(60))])
    assert not set(map(readable, words(60))) & set(words_in(large))
    assert "60 queries × 60 keys; a dot: the largest of 2 × 2 cells" in words_in(large)


def test_a_line_one_cell_wide_is_seen_in_a_map_that_is_smaller_than_its_cells():
    thin = np.eye(61) - np.eye(61, k=-1) / 2
    thin[0, 30:] = -np.inf
    small = pooled(thin, 7)
    assert small.shape == (9, 9)
    assert_array_equal(np.diag(small), 1.0)
    assert np.isfinite(small).all()
    assert pooled(-thin, 7)[5, 5] == -1.0
    assert pooled(thin, 1) is thin


def test_one_head_draws_its_weights_with_words_and_numbers():
    table = weights(5, 4)
    figure = draw_one_head(table, TGT, SRC)
    (image,) = images(figure)
    assert_array_equal(image.get_array(), table)
    seen = words_in(figure)
    assert {"·Introduce", "·Xi", "'", "an", "·介绍", "一下", "西安", "。"} <= set(seen)
    assert [text for text in seen if re.fullmatch(r"\d\.\d\d", text)][:20] == [f"{w:.2f}" for w in table.flatten()]


def test_numbers_are_white_on_dark_shades_and_black_on_light_ones():
    assert weight_scale(np.array([0.0, 0.5])).inks(np.array([[0.0, 0.1], [np.nan, 0.5]])) == [*["black"] * 3, "white"]
    assert score_scale(np.array([0.5])).inks(np.array([[-0.5, 0.0, 0.5]])) == ["white", "black", "white"]


def test_numbers_and_words_give_way_where_there_is_no_room():
    seen = words_in(draw_one_head(weights(200, 200), words(200), words(200)))
    assert "0.00" not in seen
    shown = sum(seen.count(readable(word)) for word in set(words(200)))
    assert 2 * 50 < shown < 2 * 100


def test_entropies_are_drawn_in_frames_that_uniform_rows_fill():
    table = np.array([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    expected = np.array([np.log(4), 0.0, 0.0, np.log(2)])
    np.testing.assert_allclose(entropies(table), expected, atol=1e-15)
    figure = draw_one_head(table, SRC, SRC, entropy=True)
    _, frame = rectangles(figure, "#aaaaaa")
    widths = [bar.get_width() / frame.get_width() for bar in rectangles(figure, COLOURS[0])]
    np.testing.assert_allclose(widths, expected / np.log(4), atol=1e-12)


def test_terms_and_their_sum_are_drawn_about_0_in_one_scale():
    terms = numbers(3, 4, 4)
    figure = draw_term_maps(["content", "bias", "rest"], terms, terms.sum(0) + 1e-3, SRC, SRC)
    maps = images(figure)
    assert len(maps) == 4
    for image, expected in zip(maps, [*terms, terms.sum(0)], strict=True):
        assert_array_equal(image.get_array(), expected)
    top = max(np.abs(terms).max(), np.abs(terms.sum(0)).max())
    assert {(image.norm.vmin, image.norm.vmax) for image in maps} == {(-top, top)}
    assert maps[0].norm(0.0) == 0.5
    assert {"content", "bias", "rest", "sum"} <= set(words_in(figure))
    assert any("3 terms, error of the sum 1.0e-03" in text for text in words_in(figure))


def test_where_one_may_not_look_terms_are_grey_and_no_error():
    terms, mask = numbers(2, 4, 4), np.tri(4, dtype=bool)
    score = np.where(mask, terms.sum(0), -np.inf)
    assert sum_error(terms, score) == 0.0
    for image in images(draw_term_maps(["content", "bias"], terms, score, SRC, SRC)):
        assert_array_equal(image.get_array().mask, ~mask)
        assert to_hex(image.cmap(np.ma.masked)) == NOTHING


def test_many_terms_are_shaded_by_their_root_so_that_each_is_seen():
    terms = numbers(33, 3, 3)
    norms = {image.norm for image in images(draw_term_maps(words(33), terms, terms.sum(0), *[SRC[:3]] * 2))}
    (norm,) = norms
    assert float(norm(norm.vmax / 4)) == pytest.approx(0.75)
    assert float(norm(-norm.vmax / 4)) == pytest.approx(0.25)


def test_an_alignment_marks_links_at_source_column_and_target_row():
    figure = draw_alignment(weights(5, 4), SRC, TGT, [(2, 1), (3, 4)], [(0, 0), (2, 4)], [(0, 0), (1, 3)])
    axes, (image,) = figure.axes[0], images(figure)
    assert_array_equal(image.get_array(), weights(5, 4))
    frames = rectangles(figure, COLOURS[1])
    whole = [frame.get_linestyle() in {"solid", "-"} for frame in frames]
    assert [place for place, sure in zip(places(frames, image), whole, strict=True) if sure] == [(0, 0), (2, 4)]
    assert [place for place, sure in zip(places(frames, image), whole, strict=True) if not sure] == [(1, 3)]
    (dots,) = [line for line in axes.lines if line.get_marker() == "o"]
    left, right, bottom, top = image.get_extent()
    columns = (dots.get_xdata() - left) / (right - left) * 4
    rows = (dots.get_ydata() - top) / (bottom - top) * 5
    np.testing.assert_allclose(np.stack([columns, rows], 1), [[2.5, 1.5], [3.5, 4.5]])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["chosen", "gold, sure", "gold, possible"]


def test_an_alignment_without_gold_says_nothing_of_it():
    axes = draw_alignment(weights(5, 4), SRC, TGT, [(2, 1)]).axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["chosen"]


def test_both_ways_of_looking_are_drawn_with_the_answer_framed(tmp_path):
    figure = draw_answer(weights(4, 5), weights(5, 4), SRC, TGT, (1, 3), "西安？ → Xi'an")
    figure.savefig(tmp_path / "answer.png")
    first, second = images(figure)
    np.testing.assert_allclose(first.get_array(), weights(4, 5))
    np.testing.assert_allclose(second.get_array(), weights(5, 4).T)
    frames = [patch for patch in figure.axes[0].patches if patch.get_linewidth() > 1]
    assert len(frames) == 2
    box = first.get_extent()
    cell = (box[1] - box[0]) / 5
    assert frames[0].get_x() == pytest.approx(box[0] + cell)
    assert frames[0].get_width() == pytest.approx(2 * cell)
    assert "一下" in words_in(figure)


@pytest.mark.parametrize("answer", [(2, 2), (-1, 2), (3, 6)])
def test_an_answer_outside_the_words_is_refused(answer):
    with pytest.raises(ValueError, match=f"got {answer[0]} … {answer[1]}"):
        draw_answer(weights(4, 5), weights(5, 4), SRC, TGT, answer)


def test_lines_are_as_strong_as_weights_and_each_head_has_its_colour():
    table = weights(3, 5, 4)
    axes = draw_head_lines(table, TGT, SRC, ["a", "b", "c"]).axes[0]
    assert len(axes.collections) == 3
    for lines, head, colour in zip(axes.collections, table, COLOURS, strict=False):
        strong = np.sort(head[head >= FAINTEST])
        np.testing.assert_allclose(lines.get_colors()[:, 3], np.maximum(strong, 0.08))
        assert {to_hex(c) for c in lines.get_colors()} == {colour.lower()}
        assert np.all(np.diff(lines.get_linewidths()) >= 0)


def test_a_line_goes_from_its_query_to_its_key():
    table = np.zeros((1, 5, 4))
    table[0, 3, 1] = 1.0
    figure = draw_head_lines(table, TGT, SRC, ["a"])
    (segment,) = figure.axes[0].collections[0].get_segments()
    at = {text.get_text(): text.get_position() for text in figure.axes[0].texts}
    np.testing.assert_allclose(segment[:, 1], [at["an"][1], at["一下"][1]])
    assert at["an"][0] < segment[0, 0] < segment[1, 0] < at["一下"][0]


def test_heads_that_colours_cannot_tell_apart_have_panels_of_their_own():
    axes = draw_head_lines(weights(9, 5, 4), TGT, SRC, [f"head {i}" for i in range(9)]).axes[0]
    begins = [lines.get_segments()[0][0, 0] for lines in axes.collections]
    assert len(set(begins)) == 2 and begins[:5] == [begins[0]] * 5
    seen = [text.get_text() for text in axes.texts]
    assert seen.count("西安") == 2 and {f"head {i}" for i in range(9)} <= set(seen)


def test_bars_are_as_high_as_the_shares_and_the_most_looked_at_word_is_named():
    table = weights(5, 4)
    figure = draw_word_attention(table, SRC, TGT)
    rows = figure.axes[0].collections
    heights = np.array([[-np.ptp(path.vertices[:, 1]) for path in row.get_paths()] for row in rows])
    np.testing.assert_allclose(heights / heights.min(), table / table.max())
    for row, share in zip(rows, table, strict=True):
        dark = [to_hex(colour) == COLOURS[0].lower() for colour in row.get_facecolors()]
        assert dark == (share == share.max()).tolist()
    named = [f"{['·介绍', '一下', '西安', '。'][row.argmax()]} {row.max():.0%}" for row in table]
    assert [text.get_text() for text in figure.axes[0].texts if text.get_text().endswith("%")] == named


def test_each_word_of_a_long_sentence_is_named():
    seen = words_in(draw_word_attention(weights(2, 100), words(100), words(2)))
    assert all(seen.count(readable(word)) >= words(100).count(word) for word in set(words(100)))


def test_a_word_that_looked_at_nothing_names_nothing():
    seen = words_in(draw_word_attention(np.array([[0.0, 0.0], [0.3, 0.7]]), ["a", "b"], ["x", "y"]))
    assert "b 70%" in seen and not any(text.endswith(" 0%") for text in seen)


W, N = weights(5, 4), numbers(2, 4, 4)  # 5 queries and 4 keys; two terms of 4 queries and 4 keys
ROWS, COLUMNS = "must be as many as the rows, got 4 and 5", "must be as many as the columns, got 5 and 4"


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: draw_head_grid([]), "one kind of attention or more, got 0"),
        (lambda: draw_head_grid([HeadWeights("a", W[None, None], SRC, SRC)]), f"queries {ROWS}"),
        (lambda: draw_head_grid([HeadWeights("a", W[None, None], TGT, TGT)]), f"keys {COLUMNS}"),
        (lambda: draw_one_head(W, SRC, SRC), f"queries {ROWS}"),
        (lambda: draw_one_head(W, TGT, TGT), f"keys {COLUMNS}"),
        (lambda: draw_term_maps(["a"], N, N[0], SRC, SRC), "names must be as many as the terms, got 1 and 2"),
        (lambda: draw_term_maps(["a"], W[None], W, SRC, SRC), f"queries {ROWS}"),
        (lambda: draw_term_maps(["a"], W[None], W, TGT, TGT), f"keys {COLUMNS}"),
        (lambda: draw_term_maps(["a", "b"], N, W, SRC, SRC), "the same size, got (4, 4) and (5, 4)"),
        (lambda: draw_alignment(W, SRC, SRC, []), f"target words {ROWS}"),
        (lambda: draw_alignment(W, TGT, TGT, []), f"source words {COLUMNS}"),
        (lambda: draw_alignment(W, SRC, TGT, [(4, 0)]), "one of 4 source words to one of 5 target words, got 4-0"),
        (lambda: draw_alignment(W, SRC, TGT, [], [(0, 5)]), "got 0-5"),
        (lambda: draw_alignment(W, SRC, TGT, [], [], [(-1, 0)]), "got -1-0"),
        (lambda: draw_head_lines(W[None], TGT, SRC, ["a", "b"]), "heads must be as many as the matrices, got 2 and 1"),
        (lambda: draw_head_lines(W[None], SRC, SRC, ["a"]), f"queries {ROWS}"),
        (lambda: draw_head_lines(W[None], TGT, TGT, ["a"]), f"keys {COLUMNS}"),
        (lambda: draw_word_attention(W, SRC, SRC), f"target words {ROWS}"),
        (lambda: draw_word_attention(W, TGT, TGT), f"source words {COLUMNS}"),
    ],
)
def test_sizes_that_do_not_agree_are_refused(draw, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        draw()
