"""The distance from each query to each key."""

from jaxtyping import Int
from torch import Tensor

from regard.position.contract import check


def offsets(q_positions: Int[Tensor, "#B Q"], k_positions: Int[Tensor, "#B K"]) -> Int[Tensor, "#B Q K"]:
    """Gives key position less query position: negative for keys that stand before."""
    check_both(q_positions, k_positions)
    return k_positions[:, None, :] - q_positions[:, :, None]


def check_both(q_positions: Int[Tensor, "#B Q"], k_positions: Int[Tensor, "#B K"]) -> None:
    """Raises ValueError for positions that no relative scheme can take."""
    check(q_positions, name="q_positions")
    check(k_positions, name="k_positions")
