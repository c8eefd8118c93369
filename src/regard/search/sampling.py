"""Greedy and sampled decoding."""

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Source
from regard.config import DecodeSettings
from regard.model import Seq2Seq
from regard.model.seq2seq import State, log_probs, top
from regard.padding import EOS
from regard.search.hypothesis import Hypothesis, Paths, first_paths, make_prefix, max_lengths, ranked

# From what each hypothesis read last, its state, and what it must say now, to what it says, with what probability.
Said = tuple[Int[Tensor, " R"], Float[Tensor, " R"], State]
Say = Callable[[Int[Tensor, " R"], State, Int[Tensor, " R"] | None, Paths], Said]


@torch.inference_mode()
def walk(
    model: Seq2Seq,
    src: Source,
    settings: DecodeSettings,
    prefix: list[list[int]] | None,
    n_hypotheses: int,
    say: Say,
) -> list[list[Hypothesis]]:
    """Writes some hypotheses of each sentence to their ends; a sentence leaves the batch with its last one."""
    B, device = len(src.lengths), src.ids.device
    forced = make_prefix(prefix, B)
    paths = first_paths(max_lengths(model, src, settings, forced), n_hypotheses)
    done = np.zeros(paths.totals.shape, dtype=bool)
    state = model.start(src, n_hypotheses) if B else None
    found: list[list[Hypothesis]] = [[] for _ in range(B)]
    while state is not None:
        must = forced.at(paths.length, paths.sentences, n_hypotheses)
        tokens, gains, state = say(
            to_device(paths.last(), device), state, None if must is None else to_device(must, device), paths
        )
        paths = _extended(paths, tokens, gains)
        done |= paths.tokens == EOS
        over = done.all(1) | (paths.limits <= paths.length)
        if over.any():
            _collect(found, paths, np.flatnonzero(over), settings)
            left = np.flatnonzero(~over)
            paths, done, state = (
                paths.keep(left),
                done[left],
                state.keep(to_device(left, device)) if len(left) else None,
            )
    return found


def _extended(paths: Paths, tokens: Int[Tensor, " R"], gains: Float[Tensor, " R"]) -> Paths:
    """Lets every hypothesis say what it says."""
    shape = paths.totals.shape
    said, gained = (x.cpu().numpy().reshape(shape) for x in (tokens, gains))
    return paths.extend(said, gained, np.arange(said.size).reshape(shape))


def to_device(numbers: Int[np.ndarray, " R"], device: torch.device) -> Int[Tensor, " R"]:
    """Hands numbers to the model."""
    return torch.from_numpy(numbers).to(device)


def _collect(
    found: list[list[Hypothesis]], paths: Paths, places: Int[np.ndarray, " M"], settings: DecodeSettings
) -> None:
    written = paths.hypotheses(places, settings.length_penalty)
    for sentence, hypotheses in zip(paths.sentences[places].tolist(), written, strict=True):
        found[sentence] = ranked(hypotheses, settings.n_best)


def greedy_search(
    model: Seq2Seq, src: Source, settings: DecodeSettings, prefix: list[list[int]] | None = None
) -> list[list[Hypothesis]]:
    """Writes one hypothesis of each sentence."""
    check_greedy(settings)

    def say(read: Int[Tensor, " R"], state: State, must: Int[Tensor, " R"] | None, paths: Paths) -> Said:
        best, state = model.choices(read, state, must, 1)
        return best.tokens[:, 0], best.gains[:, 0], state

    return walk(model, src, settings, prefix, 1, say)


def check_greedy(settings: DecodeSettings) -> None:
    """Raises ValueError for settings that greedy search does not have."""
    if settings.n_best != 1:
        raise ValueError(f"greedy search finds one hypothesis, got n_best {settings.n_best}: use 'beam' or 'sample'")


def sample_search(
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
