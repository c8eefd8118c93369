"""Greedy search: the likeliest token at each step."""

from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Source
from regard.config import DecodeSettings
from regard.decode.choices import top
from regard.decode.hypothesis import Hypothesis
from regard.decode.paths import Paths
from regard.decode.walk import walk
from regard.model import Seq2Seq


def search(
    model: Seq2Seq, src: Source, settings: DecodeSettings, prefix: list[list[int]] | None = None
) -> list[list[Hypothesis]]:
    """Writes one hypothesis of each sentence."""
    if settings.n_best != 1:
        raise ValueError(f"greedy search finds one hypothesis, got n_best {settings.n_best}: use 'beam' or 'sample'")
    return walk(model, src, settings, prefix, 1, likeliest)


def likeliest(said: Float[Tensor, "R V"], paths: Paths) -> Int[Tensor, " R"]:
    """Picks the token with the highest probability."""
    return top(said, 1)[1][:, 0]
