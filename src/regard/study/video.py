"""`study video`.

The canvas closes on itself (a torus), and a shape moves by whole patches: each frame has the very patches of a still
picture, in other cells. So of one still picture with its noise there is a clip in every direction with the same
patches, an *orbit*, and besides each clip played backwards, which goes the opposite way. In a whole orbit
- the set of patches is the same in all clips: without places any model says the same to all, and is right once in
  every `n` directions, exactly;
- a clip and its twin played backwards have the same frames: who knows the cell of a patch but not its frame is right in
  half of all cases at most;
- of clips that are not played backwards each frame has the same set of patches in every direction: who knows the frame
  but not the cell is right once in `n`.
"""

import math
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from regard.config import ModelSettings
from regard.plot.style import Drawing, in_style
from regard.study.images import cut, grid_places, joined
from regard.study.task import Examples, Task
from regard.study.task_report import Seen, TaskStudy, draw_bars, draw_over, who_looks
from regard.study.trials import TaskSettings
from regard.train.examples import ExampleSettings

WAYS = ("grid_3d", "sinusoidal", "learned", "grid_2d", "none")
FULL = TaskSettings(
    ModelSettings(
        n_encoder_layers=2, d_model=32, n_heads=2, d_ff=64, activation="gelu", norm_place="before", dropout=0.0
    ),
    ExampleSettings(epochs=30, batch=32, lr=2e-3),
    pool="mean",
    base=4.0,
)
QUICK = replace(FULL, learn=replace(FULL.learn, epochs=18))
SHOWN = (0, 9)  # test clips with their weights


AXES = ("index", "frame", "row", "column")
CELLS, SIDE, FRAMES = 4, 4, 4  # patches across the canvas, pixels across a patch, pictures in a clip
PIXELS = CELLS * SIDE
PACES = (1, 2)  # frames that a shape needs from one patch to the next
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


def clips_task(n_ways: int = 4, n_train: int = 3000, n_orbits: int = 50, seed: int = 0) -> Task:
    """Makes single clips to learn from, and whole orbits for validation and test."""
    if n_ways not in DIRECTIONS:
        raise ValueError(f"directions must be {' or '.join(map(str, DIRECTIONS))}, got {n_ways}")
    if min(n_train, n_orbits) < 1:
        raise ValueError(f"n_train and n_orbits must be 1 or more, got {n_train} and {n_orbits}")
    draws = torch.Generator().manual_seed(seed)
    train = _examples(*single_clips(n_train, n_ways, draws))
    valid, test = (_examples(*orbits(n_orbits, n_ways, draws)) for _ in range(2))
    return Task("clips", tuple(DIRECTIONS[n_ways]), AXES, SIDE * SIDE, train, valid, test, vary=roll)


def roll(patches: Float[Tensor, "B T P"], draws: torch.Generator) -> Float[Tensor, "B T P"]:
    """Moves each whole clip to another place on the torus, by its own chance: it goes where it went."""
    down, right = torch.randint(CELLS, (2, len(patches)), generator=draws).to(patches.device)
    rows, columns = ((torch.arange(CELLS, device=way.device) - way[:, None]) % CELLS for way in (down, right))
    grid = patches.unflatten(1, (-1, CELLS, CELLS)).transpose(1, 3)  # (B, column, row, F, P)
    clip = torch.arange(len(patches), device=patches.device)[:, None, None]
    return grid[clip, columns[:, :, None], rows[:, None, :]].transpose(1, 3).flatten(1, 3)


def single_clips(
    n: int, n_ways: int, draws: torch.Generator
) -> tuple[Float[Tensor, "N F rows columns"], Int[Tensor, " N"]]:
    """Makes clips, each of a picture of its own; every direction comes equally often."""
    stills, paces = make_stills(n, draws)
    labels = torch.arange(n) % n_ways
    return moved(stills, labels, paces, n_ways), labels


def orbits(n: int, n_ways: int, draws: torch.Generator) -> tuple[Float[Tensor, "N F rows columns"], Int[Tensor, " N"]]:
    """Makes whole orbits one after another: a picture in all directions, then each of these clips played backwards."""
    stills, paces = (x.repeat_interleave(n_ways, dim=0) for x in make_stills(n, draws))
    labels = torch.arange(n_ways).repeat(n)
    clips = moved(stills, labels, paces, n_ways).unflatten(0, (n, n_ways))
    labels = labels.unflatten(0, (n, n_ways))
    back = torch.cat([clips, clips.flip(2)], dim=1)
    return back.flatten(0, 1), torch.cat([labels, (labels + n_ways // 2) % n_ways], dim=1).flatten()


def make_stills(n: int, draws: torch.Generator) -> tuple[Float[Tensor, "N F rows columns"], Int[Tensor, " N"]]:
    """Draws shapes that stand still, each frame with noise of its own, and the pace at which each is to move."""
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
    return stills, torch.tensor(PACES)[torch.randint(len(PACES), (n,), generator=draws)]


def shape(
    name: str, y: Float[Tensor, "N rows 1"], x: Float[Tensor, "N 1 columns"], radius: Float[Tensor, "N 1 1"]
) -> Float[Tensor, "N rows columns"]:
    """Draws a shape about the origin: 1 inside, 0 outside."""
    y, x = y.abs(), x.abs()
    inside = {
        "square": torch.maximum(x, y) <= radius * math.sqrt(math.pi) / 2,  # as large as the disc
        "disc": x.square() + y.square() <= radius.square(),
        "cross": (torch.minimum(x, y) <= radius / 3) & (torch.maximum(x, y) <= radius * 1.3),
        "diamond": x + y <= radius * math.sqrt(math.pi / 2),
    }
    return inside[name].float()


def moved(
    stills: Float[Tensor, "N F rows columns"], labels: Int[Tensor, " N"], paces: Int[Tensor, " N"], n_ways: int
) -> Float[Tensor, "N F rows columns"]:
    """Moves each frame, noise too, as far as its shape has come: by whole patches, and round the torus."""
    N, n_frames = stills.shape[:2]
    steps = torch.tensor(list(DIRECTIONS[n_ways].values()))[labels] * SIDE  # (N, 2) pixels
    gone = steps[:, None] * (torch.arange(n_frames) // paces[:, None])[..., None]  # (N, F, 2)
    rows, columns = ((torch.arange(PIXELS) - way[..., None]) % PIXELS for way in gone.unbind(-1))  # (N, F, PIXELS)
    clip, frame = torch.arange(N)[:, None, None, None], torch.arange(n_frames)[:, None, None]
    return stills[clip, frame, rows[..., :, None], columns[..., None, :]]


def _examples(clips: Float[Tensor, "N F rows columns"], labels: Int[Tensor, " N"]) -> Examples:
    patches = cut(clips, SIDE)
    places = grid_places(clips.shape[1], CELLS, CELLS)
    return Examples(patches, places, torch.full((len(labels),), patches.shape[1]), labels)


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
