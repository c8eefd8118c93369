"""The hypotheses that are still being written."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import BOS
from regard.decode.hypothesis import Hypothesis, make_hypothesis


@dataclass(frozen=True, eq=False)
class Paths:
    """N hypotheses for each of the sentences that are left, all of one length, those of one sentence in a row."""

    sentences: Int[Tensor, " B"]  # which of the sentences that were given
    limits: Int[Tensor, " B"]  # tokens that their targets may have
    tokens: Int[Tensor, "B N T1"]  # BOS and what was written
    gains: Float[Tensor, "B N T"]  # log-probability of each token that was written
    totals: Float[Tensor, "B N"]  # and their sum; −∞ is a place that no hypothesis holds

    @property
    def length(self) -> int:
        """Counts the tokens written."""
        return self.gains.shape[2]

    def last(self) -> Int[Tensor, " R"]:
        """Gives the token that each hypothesis ends with, for the model to read."""
        return self.tokens[:, :, -1].flatten()

    def extend(self, tokens: Int[Tensor, "B N"], gains: Float[Tensor, "B N"]) -> "Paths":
        """Writes one token more."""
        gains = gains.to(self.gains.dtype)
        longer = torch.cat([self.tokens, tokens[..., None]], dim=2), torch.cat([self.gains, gains[..., None]], dim=2)
        return Paths(self.sentences, self.limits, *longer, self.totals + gains)

    def reorder(self, parents: Int[Tensor, "B N"]) -> "Paths":
        """Lets hypotheses continue others of the same sentence."""
        sentence = torch.arange(len(parents), device=parents.device)[:, None]
        moved = (x[sentence, parents] for x in (self.tokens, self.gains, self.totals))
        return Paths(self.sentences, self.limits, *moved)

    def keep(self, places: Int[Tensor, " M"]) -> "Paths":
        """Goes on with some sentences only."""
        kept = (x[places] for x in (self.sentences, self.limits, self.tokens, self.gains, self.totals))
        return Paths(*kept)

    def hypotheses(self, places: Int[Tensor, " M"], length_penalty: float) -> list[list[Hypothesis]]:
        """Turns what stands at some places into hypotheses, each up to its EOS if it has one."""
        written = (self.tokens[..., 1:], self.gains, self.totals != -torch.inf)
        some = (x[places].cpu().numpy().tolist() for x in written)  # a tensor's own tolist() takes three times as long
        return [
            [make_hypothesis(ids, gains, length_penalty) for ids, gains, held in zip(*rows, strict=True) if held]
            for rows in zip(*some, strict=True)
        ]


def first_paths(limits: Int[Tensor, " B"], n_hypotheses: int, dtype: torch.dtype) -> Paths:
    """Lets all hypotheses begin with BOS."""
    B, device = len(limits), limits.device
    tokens = torch.full((B, n_hypotheses, 1), BOS, device=device)
    gains = torch.zeros(B, n_hypotheses, 0, dtype=dtype, device=device)
    return Paths(torch.arange(B, device=device), limits, tokens, gains, gains.sum(-1))
