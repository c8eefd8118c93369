"""Hypotheses that are written one token at a time and never taken back."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import EOS, Source
from regard.config import DecodeSettings
from regard.decode.hypothesis import Hypothesis, ranked
from regard.decode.limits import max_lengths
from regard.decode.paths import Paths, first_paths
from regard.decode.prefix import make_prefix
from regard.model import Seq2Seq
from regard.model.seq2seq import State

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
