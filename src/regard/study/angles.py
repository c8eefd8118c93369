"""Principal angles between subspaces, with those of random subspaces as a yardstick."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.study.spread import Spread, spread


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two subspaces of one space: the angles between them in degrees, smallest first, and those of random ones.

    `overlap` is the mean of cos², the share of the smaller subspace that lies in the larger: 0 where they are
    orthogonal, 1 where one holds the other, and k/D on the mean where one of k dimensions is random.
    """

    name: str
    dims: tuple[int, int]
    width: int
    angles: Float[Tensor, " n"]
    overlap: float
    random_angles: Float[Tensor, " n"]  # means of the draws
    random_spread: Float[Tensor, " n"]
    random_overlap: Spread


def leading(x: Float[Tensor, "N D"], share: float | None = None, top: int | None = None) -> Float[Tensor, "D k"]:
    """Gives the directions along which rows vary most: so many, or the fewest that hold a share of the variance."""
    x = x.double() - x.double().mean(0)
    values, vectors = torch.linalg.eigh(x.T @ x)
    values, vectors = values.flip(0).clamp(min=0.0), vectors.flip(1)
    rank = int((values > values[0] * 1e-10).sum()) if values[0] > 0 else 0
    if rank == 0:
        raise ValueError("rows that are all alike span no subspace, got no variance")
    if top is not None:
        return vectors[:, : min(top, rank)]
    if share is None or not 0 < share <= 1:
        raise ValueError(f"a share of the variance must lie in (0, 1], got {share}")
    held = values[:rank].cumsum(0) / values[:rank].sum()
    return vectors[:, : min(rank, int((held < share - 1e-12).sum()) + 1)]


def principal_angles(a: Float[Tensor, "D k"], b: Float[Tensor, "D m"]) -> Float[Tensor, " n"]:
    """Gives the angles between two subspaces with orthonormal bases, in degrees, smallest first.

    Cosines are singular values of aᵀb; small angles are told better by their sines (Björck and Golub 1973).
    """
    a, b = (a, b) if a.shape[1] >= b.shape[1] else (b, a)
    across = a.T @ b
    cosines = torch.linalg.svdvals(across).clamp(max=1.0)
    sines = torch.linalg.svdvals(b - a @ across).flip(0).clamp(max=1.0)
    return torch.rad2deg(torch.where(cosines.square() > 0.5, sines.asin(), cosines.acos()))


def overlap(angles: Float[Tensor, " n"]) -> float:
    """Gives the mean of cos²."""
    return float(torch.deg2rad(angles).cos().square().mean())


def random_basis(width: int, k: int, chance: torch.Generator) -> Float[Tensor, "D k"]:
    """Draws a subspace, all directions alike."""
    return torch.linalg.qr(torch.randn(width, k, generator=chance, dtype=torch.float64))[0]


def compare(
    name: str, a: Float[Tensor, "D k"], b: Float[Tensor, "D m"], draws: int, chance: torch.Generator
) -> Comparison:
    """Measures the angles, and those between the first subspace and random ones of the second's dimensions."""
    width, dims = len(a), (a.shape[1], b.shape[1])
    angles = principal_angles(a, b)
    drawn = torch.stack([principal_angles(a, random_basis(width, dims[1], chance)) for _ in range(draws)])
    by_chance = spread([overlap(each) for each in drawn])
    return Comparison(name, dims, width, angles, overlap(angles), drawn.mean(0), drawn.std(0), by_chance)
