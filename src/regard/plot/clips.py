"""The study of short clips as a figure: accuracy, then frames with what each head looked at."""

import numpy as np
from matplotlib.figure import Figure

from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.plot.overlay import draw_over
from regard.plot.task_bars import draw_bars, who_looks
from regard.study.patches import joined
from regard.study.task_study import Seen, TaskStudy


@in_style
def draw_clips(study: TaskStudy) -> Figure:
    """Draws the bars, then test clips side by side: the frames, and below them the same under each head's weights."""
    L, H, _ = study.seen[0].weights.shape
    heights = [0.6 + 0.45 * len(study.rows), 0.7 + 0.82 * (1 + L * H)]
    figure = Drawing(figsize=(8.5, sum(heights)))
    top, bottom = figure.subfigures(2, 1, height_ratios=heights, squeeze=False)[:, 0]
    draw_bars(top.subplots(), study)
    bottom.suptitle(who_looks(study))
    for part, seen in zip(bottom.subfigures(1, len(study.seen), squeeze=False)[0], study.seen, strict=True):
        cells = tuple(int(end) + 1 for end in seen.places[:, 1:].amax(dim=0))
        draw_frames(part.subplots(1 + L * H, cells[0], squeeze=False), seen, cells)
        part.suptitle(f"moves {seen.right}, the model says {seen.said}", fontsize=8)
    return figure


def draw_frames(grid: np.ndarray, seen: Seen, cells: tuple[int, ...]) -> None:
    """Draws the frames of a clip in one row for the clip itself, and one for each head."""
    frames = joined(seen.tokens[None], cells)[0]
    shades, H = (float(frames.amin()), float(frames.amax())), seen.weights.shape[1]
    for axes, frame in zip(grid[0], frames, strict=True):
        draw_over(axes, frame, shades)
    for place, weights in enumerate(seen.weights.flatten(0, 1)):
        for axes, frame, own in zip(grid[1 + place], frames, weights.view(cells), strict=True):
            draw_over(axes, frame, shades, own, float(weights.amax()))
        grid[1 + place, 0].set_ylabel(f"layer {place // H}\nhead {place % H}", fontsize=7)
