"""The terms of a score side by side, and their sum."""

from collections.abc import Sequence
from math import ceil

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plot.figure import in_style
from regard.plot.matrix import dots, draw_matrix, write_numbers
from regard.plot.measure import fit_text, line_height
from regard.plot.shade import KEY_HEIGHT, Shade, draw_key, score_shade
from regard.plot.sheet import MARGIN, NAME, SMALL, Box, make_sheet, title_size, write, write_strong, write_title
from regard.plot.tiles import Tiles
from regard.plot.words import check_words

GAP = 0.15
PAGE = 13.0  # width that a row of maps should not exceed
IN_A_ROW = 8
SMALLEST, LARGEST = 1.25, 4.0  # sides of a map
CELL = 0.45  # largest side of a cell


@in_style
def draw_term_maps(
    names: Sequence[str],
    terms: Float[np.ndarray, "N Q K"],
    score: Float[np.ndarray, "_ _"],
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "What a score is made of",
) -> Figure:
    """Draws each term, then their sum, all about 0 in one scale; the title says how far the sum is from the score.

    Where the score is not finite, one may not look. With many terms, each of them small, shades follow the root.
    """
    N, Q, K = terms.shape
    check_words("names", names, N, "terms")
    check_words("queries", queries, Q, "rows")
    check_words("keys", keys, K, "columns")
    title = f"{title}: {N} term{'s' * (N > 1)}, error of the sum {sum_error(terms, score):.1e}"
    tiles = _lay_tiles(queries, keys, N + 1)
    below = _below(score, tiles.pool)
    wide, top = title_size(title, below)
    bottom = top + line_height(NAME) + tiles.height + GAP
    figure, axes = make_sheet(max(wide, tiles.width + 2 * MARGIN), bottom + KEY_HEIGHT)
    write_title(axes, title, below)
    maps = np.where(np.isfinite(score), [*terms, terms.sum(0)], np.nan)
    shade = score_shade(maps, root=N > IN_A_ROW)
    for at, (name, values) in enumerate(zip([*names, "sum"], maps, strict=True)):
        row, column = divmod(at, tiles.columns)
        box = tiles.box(row, column, MARGIN, top + line_height(NAME))
        _draw_term(axes, values, box, shade)
        tiles.name(axes, row, column, box)
        y = box.top - (tiles.up if row == 0 else 0.0) - line_height(NAME) / 2
        (write_strong if at == N else write)(axes, box.left, y, fit_text(name, SMALL, box.width), SMALL)
    meaning = "part of the score" + " (shaded by its root)" * (N > IN_A_ROW)
    draw_key(figure, shade, Box(MARGIN, bottom, 1.8, KEY_HEIGHT), meaning)
    return figure


def sum_error(terms: Float[np.ndarray, "N Q K"], score: Float[np.ndarray, "_ _"]) -> float:
    """Gives the largest distance of the terms' sum from the score, where one may look."""
    if terms.shape[1:] != score.shape:
        raise ValueError(f"terms and score must have the same size, got {terms.shape[1:]} and {score.shape}")
    allowed = np.isfinite(score)
    return float(np.abs(terms.sum(0)[allowed] - score[allowed]).max(initial=0.0))


def _lay_tiles(queries: Sequence[str], keys: Sequence[str], n: int) -> Tiles:
    """Spreads the maps over rows of nearly equal length."""
    rows = ceil(n / IN_A_ROW)
    columns = ceil(n / rows)
    side = float(np.clip(PAGE / columns - GAP, SMALLEST, min(LARGEST, max(SMALLEST, CELL * len(keys)))))
    return Tiles(queries, keys, rows, columns, side, GAP, GAP + line_height(NAME))


def _below(score: Float[np.ndarray, "Q K"], pool: int) -> str:
    """Says how to read the maps, with what is true of these alone."""
    grey = "" if np.isfinite(score).all() else "; grey: may not look"
    return "rows look (queries), columns are looked at (keys)" + grey + dots(pool)


def _draw_term(axes: Axes, values: Float[np.ndarray, "Q K"], box: Box, shade: Shade) -> None:
    draw_matrix(axes, values, box, shade)
    write_numbers(axes, values, box, shade, "z.1f", SMALL)
