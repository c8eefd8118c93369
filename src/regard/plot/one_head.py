"""One head, large, with its weights in numbers."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.plot.figure import COLOURS, in_style
from regard.plot.matrix import PAD, draw_matrix, name_columns, name_rows, place_map, write_numbers
from regard.plot.measure import line_height, text_width, widest
from regard.plot.shade import KEY_HEIGHT, draw_key, weight_shade
from regard.plot.sheet import GREY, MARGIN, SMALL, Box, make_sheet, title_size, write, write_title
from regard.plot.words import check_words

CELL = 0.4, 0.28  # inches, wide enough for a number
BELOW = "rows look (queries), columns are looked at (keys)"


@in_style
def draw_one_head(
    weights: Float[np.ndarray, "Q K"],
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "What one head looks at",
    entropy: bool = False,
) -> Figure:
    """Draws a head's weights with words on both sides, and on wish how spread out each row is."""
    Q, K = weights.shape
    check_words("queries", queries, Q, "rows")
    check_words("keys", keys, K, "columns")
    wide, top = title_size(title, BELOW)
    box, right = place_map(queries, keys, CELL, top + 0.1 * entropy)
    bars = Box(right + 0.15, box.top, _bars_width(K), box.height)
    right = bars.right + text_width("0.00", SMALL) + PAD if entropy else right
    figure, axes = make_sheet(max(wide, right + MARGIN), box.bottom + 0.15 + KEY_HEIGHT)
    write_title(axes, title, BELOW)
    shade = weight_shade(weights)
    draw_matrix(axes, weights, box, shade)
    write_numbers(axes, weights, box, shade)
    name_rows(axes, queries, box)
    name_columns(axes, keys, box)
    if entropy:
        _draw_entropies(axes, weights, bars)
    draw_key(figure, shade, Box(MARGIN, box.bottom + 0.15, 1.5, KEY_HEIGHT), "weight")
    return figure


def entropies(weights: Float[np.ndarray, "Q K"]) -> Float[np.ndarray, " Q"]:
    """Gives −Σ w log w of each row in nats, a row of zeros having 0."""
    return -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(1)


def _headings(K: int) -> tuple[str, str]:
    return "entropy of the row", f"frame: log {K} = {np.log(K):.2f} nats"


def _bars_width(K: int) -> float:
    return widest(_headings(K), SMALL)


def _draw_entropies(axes: Axes, weights: Float[np.ndarray, "Q K"], box: Box) -> None:
    """Draws a bar for each row, which would fill the frame if all keys weighed the same."""
    Q, K = weights.shape
    pitch = box.height / Q
    for up, heading in zip((1.5, 0.5), _headings(K), strict=True):
        write(axes, box.left, box.top - PAD - up * line_height(SMALL), heading, SMALL, color=GREY)
    axes.add_patch(
        Rectangle((box.left, box.top), box.width, box.height, fill=False, edgecolor="#aaaaaa", linewidth=0.5)
    )
    for i, entropy in enumerate(entropies(weights).tolist()):
        length = box.width * (min(entropy / np.log(K), 1.0) if K > 1 else 0.0)
        axes.add_patch(Rectangle((box.left, box.top + (i + 0.15) * pitch), length, 0.7 * pitch, color=COLOURS[0]))
        if pitch >= line_height(SMALL):
            write(axes, box.right + PAD, box.top + (i + 0.5) * pitch, f"{entropy:z.2f}", SMALL)
