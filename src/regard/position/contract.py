"""The position contract: the doors through which a scheme may act."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.position.by_offset import ByOffset


class Position(nn.Module):
    """Says where tokens stand, by the doors it opens; a door that stays shut does nothing.

    Positions are given explicitly, one number for each token, or `n_axes` numbers for grids and dialogues, so that a
    step with a cache is no special case. What is padding in every sentence stands at position 0.
    """

    n_axes = 1
    limit: int | None = None  # positions from here on are refused

    def places(self, n: int) -> Int[Tensor, "1 T *axes"]:
        """Gives the positions of n tokens in reading order; schemes with several axes say what that is."""
        return torch.arange(n)[None]

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "#B T *axes"]) -> Float[Tensor, "B T D2"]:
        """Puts the position into the token's vector."""
        return x

    def rotate(self, x: Float[Tensor, "B H T E"], positions: Int[Tensor, "#B T *axes"]) -> Float[Tensor, "B H T E"]:
        """Turns queries or keys by their position."""
        return x

    def bias(
        self,
        q: Float[Tensor, "B H Q E"],
        k: Float[Tensor, "B H K E2"],
        q_positions: Int[Tensor, "#B Q *axes"],
        k_positions: Int[Tensor, "#B K *axes"],
    ) -> Float[Tensor, "#B H Q K"] | None:
        """Gives what is added to the scores."""
        return None

    def by_offset(
        self,
        q: Float[Tensor, "B H Q E"],
        q_positions: Int[Tensor, "#B Q *axes"],
        k_positions: Int[Tensor, "#B K *axes"],
    ) -> ByOffset | None:
        """Gives the bias by offset, where the scheme knows it so: the same numbers in less memory."""
        return None

    def pool(
        self,
        weights: Callable[[], Float[Tensor, "B H Q K"]],
        q_positions: Int[Tensor, "#B Q *axes"],
        k_positions: Int[Tensor, "#B K *axes"],
    ) -> Float[Tensor, "B H Q E"] | None:
        """Gives what is added to the mixed values; only a scheme that asks for the weights has them built."""
        return None


def check(positions: Int[Tensor, "..."], limit: int | None = None, name: str = "positions", n_axes: int = 1) -> None:
    """Raises ValueError for positions with the wrong number of coordinates, below 0, or at or past `limit`."""
    axes = () if n_axes == 1 else (n_axes,)
    if positions.dim() < 2 or tuple(positions.shape[2:]) != axes:
        wanted = ", ".join(["B", "T", *map(str, axes)])
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(positions.shape)}")
    check_range(positions, limit, name)


def check_range(positions: Int[Tensor, "..."], limit: int | None, name: str) -> None:
    """Raises ValueError for a position below 0, or at or past `limit`.

    The values are read back from the device, so the check is left out where that is impossible: inside a captured or
    compiled step, which has always run once without capture before.
    """
    capturing = positions.is_cuda and torch.cuda.is_current_stream_capturing()
    if torch.compiler.is_compiling() or capturing or positions.numel() == 0:
        return
    low, high = (int(end) for end in torch.aminmax(positions))
    if low < 0:
        raise ValueError(f"{name} must be 0 or more, got {low}")
    if limit is not None and high >= limit:
        raise ValueError(f"{name} must be below {limit}, the end of the table, got {high}: build a larger table")
