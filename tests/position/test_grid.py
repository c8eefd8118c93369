"""Grids: a cell's code is the codes of its coordinates side by side."""

import pytest
import torch

from regard.position import Grid
from regard.position.sinusoidal import sinusoids
from tests.parts import exactly, make_position

CELL = torch.tensor([[[3, 0, 7], [2, 5, 1]]])


SHARES = [
    ("grid_2d", 8, (4, 4)),
    ("grid_2d", 6, (4, 2)),
    ("grid_2d", 7, (4, 3)),
    ("grid_2d", 3, (2, 1)),
    ("grid_3d", 9, (4, 2, 3)),
    ("grid_3d", 11, (4, 4, 3)),
    ("grid_3d", 3, (1, 1, 1)),
]


@pytest.mark.parametrize(("name", "width", "shares"), SHARES)
def test_each_axis_has_its_share_of_the_width_in_pairs(name, width, shares):
    cells = CELL[..., : len(shares)]
    found = make_position(name, width, base=100.0).codes(cells)
    for axis, part in enumerate(found.split(shares, dim=-1)):
        exactly(part, sinusoids(cells[..., axis], shares[axis], 100.0))


def test_a_cell_by_hand():
    sin, cos = torch.sin, torch.cos
    one, two = torch.tensor(1.0, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)
    expected = torch.stack([sin(one), cos(one), sin(two), cos(two)])
    exactly(Grid(4, n_axes=2).codes(torch.tensor([[[1, 2]]]))[0, 0], expected)


def test_cells_of_an_image_have_distinct_codes():
    cells = torch.cartesian_prod(torch.arange(11), torch.arange(13))[None]
    assert torch.pdist(make_position("grid_2d", 8).codes(cells)[0]).min() > 0.1


@pytest.mark.parametrize(("name", "width", "n_axes"), [("grid_2d", 1, 2), ("grid_3d", 2, 3)])
def test_fewer_features_than_axes_are_refused(name, width, n_axes):
    with pytest.raises(ValueError, match=f"width must have a feature for each of the {n_axes} axes, got {width}"):
        make_position(name, width)


def test_cells_are_read_row_by_row():
    exactly(Grid(4, n_axes=2).places(7)[0], torch.tensor([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0]]))
    cube = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0]]
    exactly(Grid(6, n_axes=3).places(5)[0], torch.tensor(cube))
