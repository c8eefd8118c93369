"""Greedy and beam search of a compiled model: some steps of a batch a call, in which Python has nothing to do."""

import numpy as np
import torch
from jaxtyping import Int

from regard.batch import Source
from regard.config import DecodeSettings
from regard.decode import beam, greedy
from regard.decode.hypothesis import Hypothesis
from regard.decode.limits import max_lengths
from regard.decode.prefix import make_prefix
from regard.decode.traceback import best_hypotheses
from regard.model.native import NativeTransformer


@torch.inference_mode()
def search(
    model: NativeTransformer, src: Source, settings: DecodeSettings, words: Int[np.ndarray, " W"] | None = None
) -> list[list[Hypothesis]]:
    """Finds what `greedy.search` and `beam.search` find, of some words where they are given.

    Threads of Python can search side by side.
    """
    (greedy if settings.method == "greedy" else beam).check(settings)
    B = len(src.lengths)
    if B == 0:
        return []
    limits = max_lengths(model, src, settings, make_prefix(None, B))
    N = 1 if settings.method == "greedy" else settings.beam
    record, lengths = model.search(src, limits, N, settings.n_best, settings.length_penalty, words)
    return best_hypotheses(record, lengths, settings)
