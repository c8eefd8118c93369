"""The study of small images as a figure: accuracy, then what each head looked at."""

import numpy as np
from matplotlib.figure import Figure

from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.plot.overlay import draw_over
from regard.plot.task_bars import draw_bars, who_looks
from regard.study.patches import joined
from regard.study.task_study import Seen, TaskStudy


@in_style
def draw_digits(study: TaskStudy) -> Figure:
    """Draws the bars, then test images in rows: the image, and over it the weights of each layer's heads."""
    L, H, _ = study.seen[0].weights.shape
    width = max(7.5, 0.72 * (1 + L * H))
    heights = [0.6 + 0.42 * len(study.rows), 0.8 + 0.78 * len(study.seen)]
    figure = Drawing(figsize=(width, sum(heights)))
    top, bottom = figure.subfigures(2, 1, height_ratios=heights, squeeze=False)[:, 0]
    draw_bars(top.subplots(), study)
    bottom.suptitle(who_looks(study))
    grid = bottom.subplots(len(study.seen), 1 + L * H, squeeze=False)
    for row, seen in zip(grid, study.seen, strict=True):
        draw_row(row, seen)
    for place in range(L * H):
        grid[0, 1 + place].set_title(f"layer {place // H}\nhead {place % H}", fontsize=7, loc="center")
    return figure


def draw_row(row: np.ndarray, seen: Seen) -> None:
    """Draws one image, plain and under the weights of each head; veils compare within a head."""
    cells = tuple(int(end) + 1 for end in seen.places[:, 1:].amax(dim=0))
    picture = joined(seen.tokens[None], cells)[0]
    shades = (float(picture.amin()), float(picture.amax()))
    draw_over(row[0], picture, shades)
    row[0].set_ylabel(seen.said if seen.said == seen.right else f"{seen.said} for {seen.right}", rotation=0, ha="right")
    for axes, weights in zip(row[1:], seen.weights.flatten(0, 1), strict=True):
        draw_over(axes, picture, shades, weights.view(cells), float(weights.amax()))
