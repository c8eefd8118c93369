"""The tokens that targets must begin with."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from regard.batch import BOS, EOS, PAD


@dataclass(frozen=True, eq=False)
class Prefix:
    """Forced tokens of some sentences, PAD where the model is free."""

    ids: Int[np.ndarray, "B P"]
    lengths: Int[np.ndarray, " B"]

    def at(self, step: int, sentences: Int[np.ndarray, " M"], n_hypotheses: int) -> Int[np.ndarray, " R"] | None:
        """Gives the token that each hypothesis of these sentences must say now; None where all are free."""
        if step >= self.ids.shape[1]:
            return None
        return self.ids[sentences, step].repeat(n_hypotheses)


def make_prefix(prefix: Sequence[Sequence[int]] | None, n_sentences: int) -> Prefix:
    """Checks and pads one prefix, which may be empty, for each sentence; None forces nothing."""
    given = [[]] * n_sentences if prefix is None else prefix
    if len(given) != n_sentences:
        raise ValueError(f"there must be one prefix for each sentence, got {len(given)} for {n_sentences}")
    for i, ids in enumerate(given):
        if wrong := [token for token in ids if token in {PAD, BOS, EOS}]:
            raise ValueError(
                f"a prefix must hold pieces only, without PAD, BOS and EOS, got id {wrong[0]} in prefix {i}"
            )
    lengths = [len(ids) for ids in given]
    width = max(lengths, default=0)
    padded = [[*ids, *[PAD] * (width - len(ids))] for ids in given]
    return Prefix(np.array(padded, dtype=np.int64).reshape(n_sentences, width), np.array(lengths, dtype=np.int64))
