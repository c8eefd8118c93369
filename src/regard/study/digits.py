"""Handwritten digits of 8 × 8 pixels as a task: 1,797 images that come with scikit-learn."""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.study.patches import cut, grid_places, joined
from regard.study.task import Examples, Task

AXES = ("index", "row", "column")
SIZE = 8
SHARES = (2 / 3, 1 / 9)  # of each digit's images: for training, for validation; what is left is the test
SPLIT_SEED = 0  # the split is the same in every trial
MEAN, DEVIATION = 0.305, 0.376  # of all pixels, black being 1
BLANK = -MEAN / DEVIATION
# How far an image is moved while it is learned from: pixels, degrees, and a share of its size.
SHIFT, TURN, STRETCH = 0.5, 5.0, 0.05


def digits_task(side: int = 2) -> Task:
    """Gives the digits in patches of `side` × `side` pixels."""
    images, labels = load_digits()
    patches = cut((images - MEAN) / DEVIATION, side)
    places = grid_places(SIZE // side, SIZE // side)
    parts = [
        Examples(patches[numbers], places, torch.full((len(numbers),), patches.shape[1]), labels[numbers])
        for numbers in split(labels, SPLIT_SEED)
    ]
    classes = tuple(str(digit) for digit in range(10))
    vary = partial(move, cells=(SIZE // side, SIZE // side))
    return Task("digits", classes, AXES, side * side, *parts, vary=vary)


def load_digits() -> tuple[Float[Tensor, "N 8 8"], Int[Tensor, " N"]]:
    """Reads the images, black being 1, with the digit that each shows."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ValueError(
            "the digits come with scikit-learn, which is not installed: pip install 'regard[tasks]'"
        ) from error
    found: Any = datasets.load_digits()
    return torch.from_numpy(found.images).float() / 16, torch.from_numpy(found.target).long()


def split(labels: Int[Tensor, " N"], seed: int) -> list[Int[Tensor, " M"]]:
    """Gives the numbers of the examples for training, validation and test, each with every class in its share."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    parts: list[list[Tensor]] = [[], [], []]
    for label in labels.unique():
        own = order[labels[order] == label]
        ends = [round(len(own) * share) for share in (SHARES[0], sum(SHARES))]
        for part, numbers in zip(parts, own.tensor_split(ends), strict=True):
            part.append(numbers)
    return [torch.cat(part) for part in parts]


def move(patches: Float[Tensor, "B T P"], draws: torch.Generator, cells: tuple[int, int]) -> Float[Tensor, "B T P"]:
    """Shifts, turns and stretches each image a little, by its own chance."""
    pictures = joined(patches, cells)
    x, y, turn, stretch = (torch.rand(4, len(patches), generator=draws) * 2 - 1).to(patches.device)
    angle, zoom = turn * math.radians(TURN), 1 + stretch * STRETCH
    shift = 2 * SHIFT / SIZE  # the picture is 2 wide in the sampler's coordinates
    rows = [
        torch.stack([angle.cos() * zoom, -angle.sin() * zoom, x * shift], dim=-1),
        torch.stack([angle.sin() * zoom, angle.cos() * zoom, y * shift], dim=-1),
    ]
    grid = F.affine_grid(torch.stack(rows, dim=1), [len(patches), 1, SIZE, SIZE], align_corners=False)
    # What comes in from outside is blank paper, which is 0 only while the sampler works.
    moved = F.grid_sample(pictures[:, None] - BLANK, grid, align_corners=False)[:, 0] + BLANK
    return cut(moved, SIZE // cells[0])
