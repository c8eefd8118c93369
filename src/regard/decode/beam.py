"""Beam search: the best continuations of the best hypotheses."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.batch import EOS, Source
from regard.config import DecodeSettings
from regard.decode.choices import choices, top
from regard.decode.hypothesis import Hypothesis, ranked
from regard.decode.limits import max_lengths
from regard.decode.paths import Paths, first_paths
from regard.decode.prefix import make_prefix
from regard.decode.standing import Standing, first_standing
from regard.model import Seq2Seq


@dataclass(frozen=True, eq=False)
class Candidates:
    """Continuations of each sentence's hypotheses by one token, the most probable first."""

    totals: Float[Tensor, "B C"]  # log-probability of the whole
    gains: Float[Tensor, "B C"]  # and of the token
    tokens: Int[Tensor, "B C"]
    parents: Int[Tensor, "B C"]  # the hypothesis it continues


@torch.inference_mode()
def search(
    model: Seq2Seq, src: Source, settings: DecodeSettings, prefix: list[list[int]] | None = None
) -> list[list[Hypothesis]]:
    """Keeps the `beam` most probable hypotheses at each step, and the ends it finds on the way.

    A hypothesis ends where EOS is among the `beam` best continuations. A sentence leaves the batch when it has `beam`
    ends, when nothing that is still being written can become better than its `n_best` ends, or at its limit; what is
    unfinished then ranks behind all ends. A step costs one of the model with `beam` rows for each sentence.
    """
    _check(settings)
    B, N = len(src.lengths), settings.beam
    forced = make_prefix(prefix, B, src.lengths.device)
    paths = _one_beginning(first_paths(max_lengths(src, settings, forced), N, torch.float64))
    standing = first_standing(paths, settings.n_best)
    state = model.start(src, N) if B else None
    found: list[list[Hypothesis]] = [[] for _ in range(B)]
    while state is not None:
        logits, state = model.step(paths.last(), state)
        best = candidates(choices(logits, forced.at(paths.length, paths.sentences, N)), paths.totals)
        standing = _finish(found, paths, best, standing, settings)
        paths, rows = advance(paths, best)
        over = standing.decided(paths, N, settings.length_penalty)
        left = (~over).nonzero()[:, 0]
        state = state.reorder(rows) if N > 1 and len(left) else state
        if len(left) < len(over):
            _close(found, paths, over.nonzero()[:, 0], settings)
            paths, standing, state = paths.keep(left), standing.keep(left), state.keep(left) if len(left) else None
    return [ranked(hypotheses, settings.n_best) for hypotheses in found]


def candidates(said: Float[Tensor, "R V"], totals: Float[Tensor, "B N"]) -> Candidates:
    """Gives the 2N best continuations: enough to go on with N, however many of them are ends."""
    B, N = totals.shape
    gains, tokens = top(said, N + 1)  # more of one hypothesis are never needed: it may end, and go on in N ways
    gains, tokens = gains.view(B, -1), tokens.view(B, -1)  # (B, N · k)
    k = gains.shape[1] // N
    best, at = (totals.repeat_interleave(k, dim=1) + gains).topk(2 * N)
    return Candidates(best, gains.gather(1, at).to(best.dtype), tokens.gather(1, at), at // k)


def ends(best: Candidates) -> Bool[Tensor, "B N"]:
    """Tells which of the first half of the continuations are ends."""
    N = best.tokens.shape[1] // 2
    return best.tokens[:, :N] == EOS


def advance(paths: Paths, best: Candidates) -> tuple[Paths, Int[Tensor, " R"]]:
    """Goes on with the N best continuations that are no ends, and tells which rows they continue."""
    B, N = paths.totals.shape
    at = best.totals.masked_fill(best.tokens == EOS, -torch.inf).topk(N).indices
    parents, gains = best.parents.gather(1, at), best.gains.gather(1, at)
    rows = parents + torch.arange(B, device=parents.device)[:, None] * N
    # A place whose best continuation would be an end holds no hypothesis any more.
    gains = gains.masked_fill(best.tokens.gather(1, at) == EOS, -torch.inf)
    return paths.reorder(parents).extend(best.tokens.gather(1, at), gains), rows.flatten()


def _one_beginning(paths: Paths) -> Paths:
    """Leaves one hypothesis of each sentence, since all begin alike."""
    paths.totals[:, 1:] = -torch.inf
    return paths


def _finish(
    found: list[list[Hypothesis]], paths: Paths, best: Candidates, standing: Standing, settings: DecodeSettings
) -> Standing:
    """Collects the ends among the continuations."""
    ending = ends(best)
    if not ending.any():
        return standing
    places = ending.any(1).nonzero()[:, 0]
    N = ending.shape[1]
    closed = paths.reorder(best.parents[:, :N]).extend(best.tokens[:, :N], best.gains[:, :N])
    closed.totals.masked_fill_(~ending, -torch.inf)
    _close(found, closed, places, settings)
    return standing.add(closed, settings.length_penalty)


def _close(found: list[list[Hypothesis]], paths: Paths, places: Int[Tensor, " M"], settings: DecodeSettings) -> None:
    written = paths.hypotheses(places, settings.length_penalty)
    for sentence, hypotheses in zip(paths.sentences[places].tolist(), written, strict=True):
        found[sentence] += hypotheses


def _check(settings: DecodeSettings) -> None:
    if settings.beam < 1:
        raise ValueError(f"beam must be 1 or more, got {settings.beam}")
    if not 1 <= settings.n_best <= settings.beam:
        raise ValueError(f"n_best must lie between 1 and beam, got {settings.n_best} and {settings.beam}")
