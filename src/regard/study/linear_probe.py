"""Linear probes: ridge regression of some targets from vectors, judged by R² on sentences that were held out."""

import torch
from torch import Tensor

from regard.shapes import Bool, Float, Int

# Times the mean variance of a feature; the one to use is chosen on a part of the training sentences.
STRENGTHS = tuple(10.0**power for power in range(-8, 3))
HELD_OUT = 0.25  # of the sentences


def fit_ridge(
    x: Float[Tensor, "N D"], y: Float[Tensor, "N K"], strengths: Float[Tensor, "S K"]
) -> tuple[Float[Tensor, "S D K"], Float[Tensor, "S K"]]:
    """Return `argmin_w mean (y − w·x − b)² + λ |w|²` and b, for each target with strengths of its own.

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
    """Return `1 − Σ (y − guess)² / Σ (y − mean)²`: 1 for a perfect guess, 0 for one no better than the mean."""
    total = (y - y.mean(0)).square().sum(0)
    return 1 - (y - guess).square().sum(-2) / total


def probe(
    x: Float[Tensor, "N D"], y: Float[Tensor, "N K"], sentences: Int[Tensor, " N"], splits: int, seed: int
) -> Float[Tensor, "splits K"]:
    """Fit y from x on three quarters of the sentences, and return R² on the others, for several random splits."""
    numbers = sentences.unique()
    if len(numbers) < 8:
        raise ValueError(f"a probe needs 8 sentences or more, some to learn from and some held out, got {len(numbers)}")
    x, y = x.double(), y.double()
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([_split(x, y, sentences, numbers, generator) for _ in range(splits)])


def _split(x: Tensor, y: Tensor, sentences: Tensor, numbers: Tensor, generator: torch.Generator) -> Tensor:
    """Choose strengths on a part of the training sentences, fit on all of them, and return R² on the test sentences."""
    shuffled = numbers[torch.randperm(len(numbers), generator=generator)]
    n_test = round(HELD_OUT * len(numbers))
    n_tried = round(HELD_OUT * (len(numbers) - n_test))
    test, tried = (torch.isin(sentences, some) for some in (shuffled[:n_test], shuffled[n_test : n_test + n_tried]))
    every = torch.tensor(STRENGTHS, dtype=x.dtype)[:, None].expand(-1, y.shape[1])
    best = _fit_and_score(x, y, ~test & ~tried, tried, every).argmax(0)
    return _fit_and_score(x, y, ~test, test, every.gather(0, best[None]))[0]


def _fit_and_score(
    x: Tensor, y: Tensor, fitted: Bool[Tensor, " N"], scored: Bool[Tensor, " N"], strengths: Tensor
) -> Float[Tensor, "S K"]:
    """Fit and return R²; guesses are clamped to the range of the training targets.

    Where a stream has collapsed to almost equal vectors, one that differs lies millions of standard deviations away,
    and would be extrapolated as far.
    """
    weights, offset = fit_ridge(x[fitted], y[fitted], strengths)
    guess = x[scored] @ weights + offset[:, None]
    return r_squared(y[scored], guess.clamp(y[fitted].amin(0), y[fitted].amax(0)))
