"""What each score makes of the same queries and keys, and why the dot product is scaled."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import ATTENTION, Dot, ScaledDot
from regard.build import build_part
from regard.config import PartSettings


@dataclass(frozen=True)
class ScoreReport:
    """One score on the shared queries and keys."""

    name: str
    mean: float
    std: float
    entropy: float  # of a row of weights, as a share of the entropy of equal weights: 1 looks everywhere, 0 at one key
    largest: float  # weight in a row, on average
    weights: Float[Tensor, "Q K"]


@dataclass(frozen=True)
class Variance:
    """The dot product of unit-variance vectors of one width (S2.3)."""

    width: int
    dot: float  # variance of qᵀk: the theory says the width
    scaled: float  # variance of qᵀk / √width: the theory says 1
    largest_dot: float  # largest weight of a row of softmax(qᵀk), on average
    largest_scaled: float
    slope_dot: float  # mean of α(1 − α), what the softmax passes back of a gradient
    slope_scaled: float


@dataclass(frozen=True)
class ScoresStudy:
    """Both experiments."""

    seed: int
    width: int
    queries: list[str]
    keys: list[str]
    scores: list[ScoreReport]
    variances: list[Variance]


def run_scores(queries: list[str], keys: list[str], width: int = 64, seed: int = 0) -> ScoresStudy:
    """Scores random unit-variance vectors, one for each word, with every entry of the table."""
    if width < 1:
        raise ValueError(f"width must be 1 or more, got {width}")
    if not queries or len(keys) < 2:
        raise ValueError(f"there must be 1 or more queries and 2 or more keys, got {len(queries)} and {len(keys)}")
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(1, 1, len(words), width, generator=generator, dtype=torch.float64) for words in (queries, keys))
    reports = [report_score(name, q, k, seed) for name in ATTENTION]
    variances = [measure_variance(2**power, generator) for power in range(1, 11)]
    return ScoresStudy(seed, width, queries, keys, reports, variances)


def report_score(name: str, q: Float[Tensor, "1 1 Q E"], k: Float[Tensor, "1 1 K E"], seed: int) -> ScoreReport:
    """Describes the scores and the weights of one attention, its parameters freshly drawn."""
    sizes = {"n_heads": 1, "d_query": q.shape[-1], "d_key": k.shape[-1]}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        attention = build_part(ATTENTION, PartSettings(name), "attention", sizes).double()
        scores, weights = attention.scores(q, k)[0, 0], attention.weights(q, k)[0, 0]
    entropy = torch.special.entr(weights).sum(dim=-1).mean() / torch.tensor(float(k.shape[2])).log()
    return ScoreReport(
        name, float(scores.mean()), float(scores.std()), float(entropy), float(weights.amax(dim=-1).mean()), weights
    )


def measure_variance(width: int, generator: torch.Generator, n: int = 128, repeats: int = 8) -> Variance:
    """Measures `repeats · n²` dot products of width `width`."""
    q, k = (torch.randn(repeats, 1, n, width, generator=generator, dtype=torch.float64) for _ in range(2))
    found = []
    for attention in (Dot(), ScaledDot()):
        weights = attention.weights(q, k)
        slope = (weights * (1 - weights)).mean()
        found.append((attention.scores(q, k).var(), weights.amax(dim=-1).mean(), slope))
    (dot, largest_dot, slope_dot), (scaled, largest_scaled, slope_scaled) = (map(float, row) for row in found)
    return Variance(width, dot, scaled, largest_dot, largest_scaled, slope_dot, slope_scaled)
