"""Hypotheses that are written one token at a time and never taken back."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.batch import EOS, Source
from regard.config import DecodeSettings
from regard.decode.choices import choices
from regard.decode.hypothesis import Hypothesis, ranked
from regard.decode.limits import max_lengths
from regard.decode.paths import Paths, first_paths
from regard.decode.prefix import make_prefix
from regard.model import Seq2Seq

# From the log-probability of each token, and the paths that it would continue, to the token that each takes.
Pick = Callable[[Float[Tensor, "R V"], Paths], Int[Tensor, " R"]]


@torch.inference_mode()
def walk(
    model: Seq2Seq,
    src: Source,
    settings: DecodeSettings,
    prefix: list[list[int]] | None,
    n_hypotheses: int,
    pick: Pick,
) -> list[list[Hypothesis]]:
    """Writes some hypotheses of each sentence to their ends; a sentence leaves the batch with its last one."""
    B = len(src.lengths)
    forced = make_prefix(prefix, B, src.lengths.device)
    paths = first_paths(max_lengths(src, settings, forced), n_hypotheses, torch.float64)
    state = model.start(src, n_hypotheses) if B else None
    found: list[list[Hypothesis]] = [[] for _ in range(B)]
    while state is not None:
        logits, state = model.step(paths.last(), state)
        said = choices(logits, forced.at(paths.length, paths.sentences, n_hypotheses))
        paths = _written(paths, pick(said, paths), said)
        over = ended(paths)
        if over.any():
            _collect(found, paths, over.nonzero()[:, 0], settings)
            left = (~over).nonzero()[:, 0]
            paths, state = paths.keep(left), state.keep(left) if len(left) else None
    return found


def ended(paths: Paths) -> Bool[Tensor, " B"]:
    """Tells of which sentences all hypotheses said EOS or have no room left."""
    return (paths.tokens == EOS).any(-1).all(-1) | (paths.limits <= paths.length)


def _written(paths: Paths, tokens: Int[Tensor, " R"], said: Float[Tensor, "R V"]) -> Paths:
    gains = said.gather(1, tokens[:, None])
    return paths.extend(tokens.view_as(paths.totals), gains.view_as(paths.totals))


def _collect(found: list[list[Hypothesis]], paths: Paths, places: Int[Tensor, " M"], settings: DecodeSettings) -> None:
    written = paths.hypotheses(places, settings.length_penalty)
    for sentence, hypotheses in zip(paths.sentences[places].tolist(), written, strict=True):
        found[sentence] = ranked(hypotheses, settings.n_best)
