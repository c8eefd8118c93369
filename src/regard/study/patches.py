"""Pictures cut into patches, with the place of each."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def cut(pictures: Float[Tensor, "N *F rows columns"], side: int) -> Float[Tensor, "N T P"]:
    """Cuts images, or the frames of clips, into squares, row by row and frame by frame."""
    rows, columns = pictures.shape[-2:]
    if side < 1 or rows % side or columns % side:
        raise ValueError(f"the side of a patch must divide {rows} × {columns} pixels, got {side}")
    tiles = pictures.unflatten(-1, (-1, side)).unflatten(-3, (-1, side))  # (N, *F, r, side, c, side)
    return tiles.transpose(-3, -2).flatten(-2).flatten(1, -2)


def joined(patches: Float[Tensor, "N T P"], cells: tuple[int, ...]) -> Float[Tensor, "N *F rows columns"]:
    """Puts pictures together again from patches that lie in so many (frames,) rows and columns."""
    side = round(patches.shape[-1] ** 0.5)
    tiles = patches.unflatten(-1, (side, side)).unflatten(1, cells)  # (N, *F, r, c, side, side)
    return tiles.transpose(-3, -2).flatten(-2).flatten(-3, -2)


def grid_places(*cells: int) -> Int[Tensor, "1 T A"]:
    """Gives each cell's index in reading order, then its coordinates."""
    index = torch.arange(torch.Size(cells).numel())
    coordinates = torch.cartesian_prod(*(torch.arange(n) for n in cells)).reshape(len(index), -1)
    return torch.cat([index[:, None], coordinates], dim=1)[None]
