"""Sampling: each token by chance, the likely ones more often."""

from hashlib import blake2b

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Source
from regard.config import DecodeSettings
from regard.decode.hypothesis import Hypothesis
from regard.decode.limits import max_lengths
from regard.decode.paths import Paths
from regard.decode.prefix import make_prefix
from regard.decode.walk import Said, walk
from regard.model import Seq2Seq, State
from regard.model.choices import log_probs, top


def search(
    model: Seq2Seq, src: Source, settings: DecodeSettings, prefix: list[list[int]] | None = None
) -> list[list[Hypothesis]]:
    """Writes `n_best` hypotheses of each sentence, independent of each other, and ranks them.

    Chance depends on the seed and the sentence alone: the same sentence gets the same samples in any batch.
    """
    check_chance(settings)
    limits = max_lengths(model, src, settings, make_prefix(prefix, len(src.lengths)))
    luck = draws(src, limits.tolist(), settings)

    def say(read: Int[Tensor, " R"], state: State, must: Int[Tensor, " R"] | None, paths: Paths) -> Said:
        logits, state = model.step(read, state)
        said = log_probs(logits, must)
        tokens = drawn(said, luck[paths.sentences, :, paths.length].flatten(), settings)
        return tokens, said.gather(1, tokens[:, None])[:, 0], state

    return walk(model, src, settings, prefix, settings.n_best, say)


def draws(src: Source, limits: list[int], settings: DecodeSettings) -> Float[Tensor, "B N T"]:
    """Draws from [0, 1) for each step of each hypothesis, by a generator for each sentence."""
    luck = torch.zeros(len(limits), settings.n_best, max(limits, default=0), dtype=torch.float64)
    for row, ids, length, limit in zip(luck, src.ids.tolist(), src.lengths.tolist(), limits, strict=True):
        digest = blake2b(repr((settings.seed, ids[:length])).encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "little", signed=True))
        row[:, :limit] = torch.rand(settings.n_best, limit, dtype=torch.float64, generator=generator)
    return luck.to(src.ids.device)


def drawn(said: Float[Tensor, "R V"], luck: Float[Tensor, " R"], settings: DecodeSettings) -> Int[Tensor, " R"]:
    """Picks the first token at which the cumulated probability exceeds the draw."""
    if settings.top_k is None and settings.top_p is None:
        return _exceeding((said / settings.temperature).softmax(-1, dtype=torch.float64), luck)
    largest, ids = top(said, said.shape[1] if settings.top_k is None else settings.top_k)
    probabilities = (largest / settings.temperature).softmax(-1, dtype=torch.float64)
    if settings.top_p is not None:
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= settings.top_p, 0.0)  # the first always stays
    return ids.gather(1, _exceeding(probabilities, luck)[:, None])[:, 0]


def _exceeding(probabilities: Float[Tensor, "R K"], luck: Float[Tensor, " R"]) -> Int[Tensor, " R"]:
    reached = probabilities.cumsum(-1)
    return (reached <= luck[:, None] * reached[:, -1:]).sum(-1)


def check_chance(settings: DecodeSettings) -> None:
    """Raises ValueError for settings by which nothing can be drawn."""
    if settings.n_best < 1:
        raise ValueError(f"n_best must be 1 or more, got {settings.n_best}")
    if not settings.temperature > 0:
        raise ValueError(f"temperature must be above 0, got {settings.temperature}: for the likeliest use 'greedy'")
    if settings.top_k is not None and settings.top_k < 1:
        raise ValueError(f"top_k must be 1 or more, got {settings.top_k}")
    if settings.top_p is not None and not 0 < settings.top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1], got {settings.top_p}")
