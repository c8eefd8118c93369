"""`regard study images`: must a classifier of small images know where each patch lies?"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.extras import needed_by
from regard.plot.style import in_style, new_figure
from regard.shapes import Float, Int
from regard.study.task import SMALL_MODEL, Examples, Task, TaskSettings
from regard.study.trials import (
    ShownExample,
    TaskStudy,
    accuracy_tables,
    attention_title,
    draw_bars,
    draw_over,
    run_task,
)
from regard.trace.head_ablation import ProgressBar, no_progress
from regard.train.examples import ExampleSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENCODINGS = ("grid_2d", "sinusoidal", "learned", "none")
SETTINGS = TaskSettings(
    replace(SMALL_MODEL, d_model=48, n_heads=4, d_ff=96, dropout=0.05),
    ExampleSettings(epochs=90, batch=64, lr=3e-3, weight_decay=0.05),
    pool="mean",
    base=10.0,
)
QUICK = replace(SETTINGS, learn=replace(SETTINGS.learn, epochs=50))
SIDE = 2
SHOWN = (0, 80, 160, 240, 320)  # test images drawn with the attention over them; the test set is sorted by digit


def cut(pictures: Float[Tensor, "N *F rows columns"], side: int) -> Float[Tensor, "N T P"]:
    """Cut images, or the frames of clips, into square patches, row by row and frame by frame."""
    rows, columns = pictures.shape[-2:]
    if side < 1 or rows % side or columns % side:
        raise ValueError(f"the side of a patch must divide {rows} × {columns} pixels, got {side}")
    tiles = pictures.unflatten(-1, (-1, side)).unflatten(-3, (-1, side))  # (N, *F, r, side, c, side)
    return tiles.transpose(-3, -2).flatten(-2).flatten(1, -2)


def assemble(patches: Float[Tensor, "N T P"], cells: tuple[int, ...]) -> Float[Tensor, "N *F rows columns"]:
    """Put pictures together again from patches in so many (frames,) rows and columns."""
    side = round(patches.shape[-1] ** 0.5)
    tiles = patches.unflatten(-1, (side, side)).unflatten(1, cells)  # (N, *F, r, c, side, side)
    return tiles.transpose(-3, -2).flatten(-2).flatten(-3, -2)


def grid_positions(*cells: int) -> Int[Tensor, "1 T A"]:
    """Return each cell's index in reading order, then its coordinates."""
    index = torch.arange(torch.Size(cells).numel())
    coordinates = torch.cartesian_prod(*(torch.arange(n) for n in cells)).reshape(len(index), -1)
    return torch.cat([index[:, None], coordinates], dim=1)[None]


AXES = ("index", "row", "column")
SIZE = 8
SHARES = (2 / 3, 1 / 9)  # of each digit's images: for training, for validation; what is left is the test
SPLIT_SEED = 0  # the split is the same in every trial
MEAN, DEVIATION = 0.305, 0.376  # of all pixels, black being 1
BLANK = -MEAN / DEVIATION
# Augmentation of training images: pixels, degrees, and a share of the size.
SHIFT, ROTATION, STRETCH = 0.5, 5.0, 0.05


def make_task(side: int = 2) -> Task:
    """Return the digits in patches of `side` × `side` pixels."""
    images, labels = load_digits()
    patches = cut((images - MEAN) / DEVIATION, side)
    positions = grid_positions(SIZE // side, SIZE // side)
    parts = [
        Examples(patches[numbers], positions, torch.full((len(numbers),), patches.shape[1]), labels[numbers])
        for numbers in split(labels, SPLIT_SEED)
    ]
    classes = tuple(str(digit) for digit in range(10))
    vary = partial(augment, cells=(SIZE // side, SIZE // side))
    return Task("digits", classes, AXES, side * side, *parts, vary=vary)


def load_digits() -> tuple[Float[Tensor, "N 8 8"], Int[Tensor, " N"]]:
    """Load the images, black being 1, with the digit that each shows."""
    with needed_by("the study of images"):
        from sklearn import datasets  # optional
    digits: Any = datasets.load_digits()
    return torch.from_numpy(digits.images).float() / 16, torch.from_numpy(digits.target).long()


def split(labels: Int[Tensor, " N"], seed: int) -> list[Int[Tensor, " M"]]:
    """Return the numbers of the training, validation and test examples, stratified by class."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    parts: list[list[Tensor]] = [[], [], []]
    for label in labels.unique():
        own = order[labels[order] == label]
        ends = [round(len(own) * share) for share in (SHARES[0], sum(SHARES))]
        for part, numbers in zip(parts, own.tensor_split(ends), strict=True):
            part.append(numbers)
    return [torch.cat(part) for part in parts]


def augment(patches: Float[Tensor, "B T P"], draws: torch.Generator, cells: tuple[int, int]) -> Float[Tensor, "B T P"]:
    """Shift, rotate and stretch each image by small random amounts."""
    pictures = assemble(patches, cells)
    x, y, turn, stretch = (torch.rand(4, len(patches), generator=draws) * 2 - 1).to(patches.device)
    angle, zoom = turn * math.radians(ROTATION), 1 + stretch * STRETCH
    shift = 2 * SHIFT / SIZE  # the picture is 2 wide in the sampler's coordinates
    rows = [
        torch.stack([angle.cos() * zoom, -angle.sin() * zoom, x * shift], dim=-1),
        torch.stack([angle.sin() * zoom, angle.cos() * zoom, y * shift], dim=-1),
    ]
    grid = F.affine_grid(torch.stack(rows, dim=1), [len(patches), 1, SIZE, SIZE], align_corners=False)
    # What comes in from outside is blank paper, which is 0 only while the sampler works.
    moved = F.grid_sample(pictures[:, None] - BLANK, grid, align_corners=False)[:, 0] + BLANK
    return cut(moved, SIZE // cells[0])


def run(
    encodings: Sequence[str],
    settings: TaskSettings,
    seeds: Sequence[int],
    device: torch.device,
    bar: ProgressBar = no_progress,
    side: int = SIDE,
) -> TaskStudy:
    """Train and test a classifier of digits with every encoding and every seed."""
    return run_task(make_task(side), encodings, settings, seeds, device, SHOWN, bar)


tables = accuracy_tables


@in_style
def figure(study: TaskStudy) -> "Figure":
    """Draw accuracies, then test images in rows: the image, and over it the weights of each layer's heads."""
    L, H, _ = study.examples[0].weights.shape
    width = max(7.5, 0.72 * (1 + L * H))
    heights = [0.6 + 0.42 * len(study.rows), 0.8 + 0.78 * len(study.examples)]
    drawing = new_figure(figsize=(width, sum(heights)))
    top, bottom = drawing.subfigures(2, 1, height_ratios=heights, squeeze=False)[:, 0]
    draw_bars(top.subplots(), study)
    bottom.suptitle(attention_title(study))
    grid = bottom.subplots(len(study.examples), 1 + L * H, squeeze=False)
    for row, shown in zip(grid, study.examples, strict=True):
        draw_row(row, shown)
    for index in range(L * H):
        grid[0, 1 + index].set_title(f"layer {index // H}\nhead {index % H}", fontsize=7, loc="center")
    return drawing


def draw_row(row: np.ndarray, shown: ShownExample) -> None:
    """Draw one image, alone and under the weights of each head; opacities compare within a head."""
    cells = tuple(int(end) + 1 for end in shown.positions[:, 1:].amax(dim=0))
    picture = assemble(shown.tokens[None], cells)[0]
    shades = (float(picture.amin()), float(picture.amax()))
    draw_over(row[0], picture, shades)
    row[0].set_ylabel(
        shown.prediction if shown.prediction == shown.label else f"{shown.prediction} for {shown.label}",
        rotation=0,
        ha="right",
    )
    for axes, weights in zip(row[1:], shown.weights.flatten(0, 1), strict=True):
        draw_over(axes, picture, shades, weights.view(cells), float(weights.amax()))
