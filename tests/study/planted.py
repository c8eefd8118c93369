"""A tiny task with a planted rule: on which side of a row of cells is the bright one?"""

import torch

from regard.config import ModelSettings
from regard.study.images import grid_positions
from regard.study.task import Examples, Task, TaskSettings
from regard.train.examples import ExampleSettings

SETTINGS = TaskSettings(
    ModelSettings(n_encoder_layers=1, d_model=16, n_heads=2, d_ff=32, norm_place="before", dropout=0.0),
    ExampleSettings(epochs=10, batch=24, lr=1e-2),
)


def sides(n: int, seed: int) -> Examples:
    """Makes grids of 2 × 4 cells with one bright cell; the label is its half."""
    bright = torch.randint(8, (n,), generator=torch.Generator().manual_seed(seed))
    tokens = torch.nn.functional.one_hot(bright, 8).float()[..., None]
    return Examples(tokens, grid_positions(2, 4), torch.full((n,), 8), (bright % 4 >= 2).long())


def planted() -> Task:
    parts = [sides(n, seed) for seed, n in enumerate((96, 64, 64))]
    return Task("sides", ("left", "right"), ("index", "row", "column"), 1, *parts)
