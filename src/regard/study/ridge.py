"""A linear probe: ridge regression from vectors to numbers, judged on sentences that it has not seen."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Times the mean variance of a feature; which one is used is decided on a part of the sentences that it learns from.
STRENGTHS = tuple(10.0**power for power in range(-8, 3))
HELD_OUT = 0.25  # of the sentences


def fit_ridge(
    x: Float[Tensor, "N D"], y: Float[Tensor, "N K"], strengths: Float[Tensor, "S K"]
) -> tuple[Float[Tensor, "S D K"], Float[Tensor, "S K"]]:
    """Gives `argmin_w mean (y − w·x − b)² + λ |w|²` and b, for each target with strengths of its own.

    `λ` is the strength times the mean variance of a feature. One decomposition of the D × D matrix of covariances
    serves all strengths and targets.
    """
    centre, middle = x.mean(0), y.mean(0)
    x, y = x - centre, y - middle
    values, vectors = torch.linalg.eigh(x.T @ x / len(x))
    values = values.clamp(min=0.0)
    turned = vectors.T @ (x.T @ y) / len(x)  # (D, K)
    penalty = (strengths * values.mean()).clamp(min=torch.finfo(x.dtype).tiny)
    weights = vectors @ (turned / (values[:, None] + penalty[:, None]))  # (S, D, K)
    return weights, middle - centre @ weights


def r_squared(y: Float[Tensor, "N K"], guess: Float[Tensor, "*S N K"]) -> Float[Tensor, "*S K"]:
    """Gives `1 − Σ (y − guess)² / Σ (y − mean)²`: 1 where all is told, 0 where the mean tells as much."""
    total = (y - y.mean(0)).square().sum(0)
    return 1 - (y - guess).square().sum(-2) / total


def probe(
    x: Float[Tensor, "N D"], y: Float[Tensor, "N K"], sentences: Int[Tensor, " N"], splits: int, seed: int
) -> Float[Tensor, "splits K"]:
    """Learns to tell y from x on three quarters of the sentences, and gives R² on the others, for some splits."""
    numbers = sentences.unique()
    if len(numbers) < 8:
        raise ValueError(f"a probe needs 8 sentences or more, some to learn from and some held out, got {len(numbers)}")
    x, y = x.double(), y.double()
    chance = torch.Generator().manual_seed(seed)
    return torch.stack([_split(x, y, sentences, numbers, chance) for _ in range(splits)])


def _split(x: Tensor, y: Tensor, sentences: Tensor, numbers: Tensor, chance: torch.Generator) -> Tensor:
    """Chooses strengths on a held-out part of what is learned from, learns again from all of it, and is judged."""
    shuffled = numbers[torch.randperm(len(numbers), generator=chance)]
    n_test = round(HELD_OUT * len(numbers))
    n_tried = round(HELD_OUT * (len(numbers) - n_test))
    test, tried = (torch.isin(sentences, some) for some in (shuffled[:n_test], shuffled[n_test : n_test + n_tried]))
    every = torch.tensor(STRENGTHS, dtype=x.dtype)[:, None].expand(-1, y.shape[1])
    best = _judged(x, y, ~test & ~tried, tried, every).argmax(0)
    return _judged(x, y, ~test, test, every.gather(0, best[None]))[0]


def _judged(
    x: Tensor, y: Tensor, learned: Bool[Tensor, " N"], judged: Bool[Tensor, " N"], strengths: Tensor
) -> Float[Tensor, "S K"]:
    """Gives R²; no guess goes beyond the targets that were learned from.

    In a stream that has collapsed, all but equal vectors tell little, and one that differs would lie millions of
    standard deviations away, and be guessed as far out.
    """
    weights, offset = fit_ridge(x[learned], y[learned], strengths)
    guess = x[judged] @ weights + offset[:, None]
    return r_squared(y[judged], guess.clamp(y[learned].amin(0), y[learned].amax(0)))
