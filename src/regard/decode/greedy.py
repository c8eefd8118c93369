"""Greedy search: the likeliest token at each step."""

from jaxtyping import Int
from torch import Tensor

from regard.batch import Source
from regard.config import DecodeSettings
from regard.decode.hypothesis import Hypothesis
from regard.decode.paths import Paths
from regard.decode.walk import Said, walk
from regard.model import Seq2Seq, State


def search(
    model: Seq2Seq, src: Source, settings: DecodeSettings, prefix: list[list[int]] | None = None
) -> list[list[Hypothesis]]:
    """Writes one hypothesis of each sentence."""
    check(settings)

    def say(read: Int[Tensor, " R"], state: State, must: Int[Tensor, " R"] | None, paths: Paths) -> Said:
        best, state = model.choices(read, state, must, 1)
        return best.tokens[:, 0], best.gains[:, 0], state

    return walk(model, src, settings, prefix, 1, say)


def check(settings: DecodeSettings) -> None:
    """Raises ValueError for settings that greedy search does not have."""
    if settings.n_best != 1:
        raise ValueError(f"greedy search finds one hypothesis, got n_best {settings.n_best}: use 'beam' or 'sample'")
