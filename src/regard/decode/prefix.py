"""The tokens that targets must begin with."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.batch import BOS, EOS, PAD


@dataclass(frozen=True, eq=False)
class Prefix:
    """Forced tokens of some sentences, PAD where the model is free."""

    ids: Int[Tensor, "B P"]
    lengths: Int[Tensor, " B"]

    def at(self, step: int, sentences: Int[Tensor, " M"], n_hypotheses: int) -> Int[Tensor, " R"] | None:
        """Gives the token that each hypothesis of these sentences must say now; None where all are free."""
        if step >= self.ids.shape[1]:
            return None
        return self.ids[sentences, step].repeat_interleave(n_hypotheses)


def make_prefix(prefix: Sequence[Sequence[int]] | None, n_sentences: int, device: torch.device) -> Prefix:
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
    table = torch.tensor(padded, dtype=torch.long, device=device).reshape(n_sentences, width)
    return Prefix(table, torch.tensor(lengths, dtype=torch.long, device=device))
