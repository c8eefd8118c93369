"""`regard study video`: which coordinates reveal the direction of a moving shape?

The canvas closes on itself (a torus), and a shape moves by whole patches: each frame has the very patches of a still
picture, in other cells. So of one still picture with its noise there is a clip in every direction with the same
patches, an *orbit*, and besides each clip played backwards, which goes the opposite way. In a whole orbit
- the set of patches is the same in all clips: without positions any model gives all the same answer, and is right
  once in every `n` directions, exactly;
- a clip and its twin played backwards have the same frames: a model that knows the cell of a patch but not its frame is
  right in half of all cases at most;
- of clips that are not played backwards each frame has the same set of patches in every direction: a model that
  knows the frame but not the cell is right once in `n`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from regard.plot.style import in_style, new_figure
from regard.shapes import Float, Int
from regard.study import trials
from regard.study.images import assemble, cut, grid_positions
from regard.study.task import SMALL_MODEL, Examples, Task, TaskSettings
from regard.trace.head_ablation import ProgressBar, no_progress
from regard.train.examples import ExampleSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENCODINGS = ("grid_3d", "sinusoidal", "learned", "grid_2d", "none")
SETTINGS = TaskSettings(
    SMALL_MODEL,
    ExampleSettings(epochs=30, batch=32, lr=2e-3),
    pool="mean",
    base=4.0,
)
QUICK = replace(SETTINGS, learn=replace(SETTINGS.learn, epochs=18))
SHOWN = (0, 9)  # test clips drawn with the attention over them


AXES = ("index", "frame", "row", "column")
CELLS, SIDE, FRAMES = 4, 4, 4  # patches across the canvas, pixels across a patch, pictures in a clip
PIXELS = CELLS * SIDE
FRAMES_PER_CELL = (1, 2)  # frames that a shape needs from one patch to the next
NOISE = 0.2  # standard deviation; a shape is 1 on a canvas of 0
RADII = (1.5, 3.0)
SHAPES = ("square", "disc", "cross", "diamond")
DIRECTIONS = {
    4: {"right": (0, 1), "down": (1, 0), "left": (0, -1), "up": (-1, 0)},
    8: {
        "right": (0, 1),
        "down right": (1, 1),
        "down": (1, 0),
        "down left": (1, -1),
        "left": (0, -1),
        "up left": (-1, -1),
        "up": (-1, 0),
        "up right": (-1, 1),
    },
}  # in rows and columns; the opposite way is half the list further


def make_task(n_directions: int = 4, n_train: int = 3000, n_orbits: int = 50, seed: int = 0) -> Task:
    """Make single clips for training, and whole orbits for validation and test."""
    if n_directions not in DIRECTIONS:
        raise ValueError(f"directions must be {' or '.join(map(str, DIRECTIONS))}, got {n_directions}")
    if min(n_train, n_orbits) < 1:
        raise ValueError(f"n_train and n_orbits must be 1 or more, got {n_train} and {n_orbits}")
    draws = torch.Generator().manual_seed(seed)
    train = _examples(*single_clips(n_train, n_directions, draws))
    valid, test = (_examples(*orbits(n_orbits, n_directions, draws)) for _ in range(2))
    return Task("clips", tuple(DIRECTIONS[n_directions]), AXES, SIDE * SIDE, train, valid, test, vary=roll)


def roll(patches: Float[Tensor, "B T P"], draws: torch.Generator) -> Float[Tensor, "B T P"]:
    """Shift each whole clip on the torus by a random number of cells: its direction stays."""
    down, right = torch.randint(CELLS, (2, len(patches)), generator=draws).to(patches.device)
    rows, columns = ((torch.arange(CELLS, device=way.device) - way[:, None]) % CELLS for way in (down, right))
    grid = patches.unflatten(1, (-1, CELLS, CELLS)).transpose(1, 3)  # (B, column, row, F, P)
    clip = torch.arange(len(patches), device=patches.device)[:, None, None]
    return grid[clip, columns[:, :, None], rows[:, None, :]].transpose(1, 3).flatten(1, 3)


def single_clips(
    n: int, n_directions: int, draws: torch.Generator
) -> tuple[Float[Tensor, "N F rows columns"], Int[Tensor, " N"]]:
    """Make clips, each of a picture of its own; every direction is equally frequent."""
    stills, frames_per_cell = make_stills(n, draws)
    labels = torch.arange(n) % n_directions
    return moved(stills, labels, frames_per_cell, n_directions), labels


def orbits(
    n: int, n_directions: int, draws: torch.Generator
) -> tuple[Float[Tensor, "N F rows columns"], Int[Tensor, " N"]]:
    """Make whole orbits one after another: a picture in all directions, then each of these clips played backwards."""
    stills, frames_per_cell = (x.repeat_interleave(n_directions, dim=0) for x in make_stills(n, draws))
    labels = torch.arange(n_directions).repeat(n)
    clips = moved(stills, labels, frames_per_cell, n_directions).unflatten(0, (n, n_directions))
    labels = labels.unflatten(0, (n, n_directions))
    back = torch.cat([clips, clips.flip(2)], dim=1)
    return back.flatten(0, 1), torch.cat([labels, (labels + n_directions // 2) % n_directions], dim=1).flatten()


def make_stills(n: int, draws: torch.Generator) -> tuple[Float[Tensor, "N F rows columns"], Int[Tensor, " N"]]:
    """Draw shapes that stand still, each frame with noise of its own, and how many frames each needs per cell."""
    kinds = torch.randint(len(SHAPES), (n,), generator=draws)
    low, high = RADII
    radii = low + (high - low) * torch.rand(n, 1, 1, generator=draws)
    centres = torch.rand(n, 2, generator=draws) * PIXELS
    pixel = torch.arange(PIXELS, dtype=torch.float32)
    # The shorter way round the torus, from the centre to the pixel.
    y, x = ((pixel - centre[:, None] + PIXELS / 2) % PIXELS - PIXELS / 2 for centre in centres.unbind(1))
    drawn = torch.stack([shape(name, y[:, :, None], x[:, None, :], radii) for name in SHAPES])  # (shapes, N, R, C)
    noise = NOISE * torch.randn(n, FRAMES, PIXELS, PIXELS, generator=draws)
    stills = drawn[kinds, torch.arange(n)][:, None] + noise
    return stills, torch.tensor(FRAMES_PER_CELL)[torch.randint(len(FRAMES_PER_CELL), (n,), generator=draws)]


def shape(
    name: str, y: Float[Tensor, "N rows 1"], x: Float[Tensor, "N 1 columns"], radius: Float[Tensor, "N 1 1"]
) -> Float[Tensor, "N rows columns"]:
    """Draw a shape around the origin: 1 inside, 0 outside."""
    y, x = y.abs(), x.abs()
    inside = {
        "square": torch.maximum(x, y) <= radius * math.sqrt(math.pi) / 2,  # as large as the disc
        "disc": x.square() + y.square() <= radius.square(),
        "cross": (torch.minimum(x, y) <= radius / 3) & (torch.maximum(x, y) <= radius * 1.3),
        "diamond": x + y <= radius * math.sqrt(math.pi / 2),
    }
    return inside[name].float()


def moved(
    stills: Float[Tensor, "N F rows columns"],
    labels: Int[Tensor, " N"],
    frames_per_cell: Int[Tensor, " N"],
    n_directions: int,
) -> Float[Tensor, "N F rows columns"]:
    """Move each frame, noise included, by whole patches around the torus."""
    N, n_frames = stills.shape[:2]
    steps = torch.tensor(list(DIRECTIONS[n_directions].values()))[labels] * SIDE  # (N, 2) pixels
    gone = steps[:, None] * (torch.arange(n_frames) // frames_per_cell[:, None])[..., None]  # (N, F, 2)
    rows, columns = ((torch.arange(PIXELS) - way[..., None]) % PIXELS for way in gone.unbind(-1))  # (N, F, PIXELS)
    clip, frame = torch.arange(N)[:, None, None, None], torch.arange(n_frames)[:, None, None]
    return stills[clip, frame, rows[..., :, None], columns[..., None, :]]


def _examples(clips: Float[Tensor, "N F rows columns"], labels: Int[Tensor, " N"]) -> Examples:
    patches = cut(clips, SIDE)
    positions = grid_positions(clips.shape[1], CELLS, CELLS)
    return Examples(patches, positions, torch.full((len(labels),), patches.shape[1]), labels)


def run(
    encodings: Sequence[str],
    settings: TaskSettings,
    seeds: Sequence[int],
    device: torch.device,
    bar: ProgressBar = no_progress,
    n_directions: int = 4,
) -> trials.TaskStudy:
    """Train and test a classifier of directions with every encoding and every seed."""
    return trials.run_task(make_task(n_directions), encodings, settings, seeds, device, SHOWN, bar)


tables = trials.accuracy_tables


@in_style
def figure(study: trials.TaskStudy) -> "Figure":
    """Draw accuracies, then test clips: the frames, and below them the same under each head's weights."""
    L, H, _ = study.examples[0].weights.shape
    heights = [0.6 + 0.45 * len(study.rows), 0.7 + 0.82 * (1 + L * H)]
    drawing = new_figure(figsize=(8.5, sum(heights)))
    top, bottom = drawing.subfigures(2, 1, height_ratios=heights, squeeze=False)[:, 0]
    trials.draw_bars(top.subplots(), study)
    bottom.suptitle(trials.attention_title(study))
    for part, shown in zip(bottom.subfigures(1, len(study.examples), squeeze=False)[0], study.examples, strict=True):
        cells = tuple(int(end) + 1 for end in shown.positions[:, 1:].amax(dim=0))
        draw_frames(part.subplots(1 + L * H, cells[0], squeeze=False), shown, cells)
        part.suptitle(f"moves {shown.label}, the model says {shown.prediction}", fontsize=8)
    return drawing


def draw_frames(grid: np.ndarray, shown: trials.ShownExample, cells: tuple[int, ...]) -> None:
    """Draw the frames of a clip: a row for the clip itself, and one for each head."""
    frames = assemble(shown.tokens[None], cells)[0]
    shades, H = (float(frames.amin()), float(frames.amax())), shown.weights.shape[1]
    for axes, frame in zip(grid[0], frames, strict=True):
        trials.draw_over(axes, frame, shades)
    for place, weights in enumerate(shown.weights.flatten(0, 1)):
        for axes, frame, own in zip(grid[1 + place], frames, weights.view(cells), strict=True):
            trials.draw_over(axes, frame, shades, own, float(weights.amax()))
        grid[1 + place, 0].set_ylabel(f"layer {place // H}\nhead {place % H}", fontsize=7)
