"""When a search may stop: finished hypotheses against those that are still being written."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.paths import Paths


@dataclass(frozen=True, eq=False)
class Standing:
    """The best scores of finished hypotheses of each sentence, and how many have finished."""

    scores: Float[Tensor, "B M"]  # largest first, −∞ where fewer have finished
    n_finished: Int[Tensor, " B"]

    def add(self, closed: Paths, length_penalty: float) -> "Standing":
        """Counts hypotheses that end with this token."""
        more = torch.cat([self.scores, closed.totals / closed.length**length_penalty], dim=1)
        n_more = (closed.totals != -torch.inf).sum(1)
        return Standing(more.topk(self.scores.shape[1]).values, self.n_finished + n_more)

    def keep(self, places: Int[Tensor, " M"]) -> "Standing":
        """Goes on with some sentences only."""
        return Standing(self.scores[places], self.n_finished[places])

    def decided(self, paths: Paths, beam: int, length_penalty: float) -> Bool[Tensor, " B"]:
        """Tells which sentences have `beam` ends, can find no better one, or have no room left.

        A log-probability never grows. Divided by a power of the length it is best at the longest length for a positive
        penalty, and at the next one otherwise.
        """
        length = paths.limits.double() if length_penalty > 0 else paths.length + 1
        bound = paths.totals.amax(1) / length**length_penalty
        return (self.n_finished >= beam) | (bound <= self.scores[:, -1]) | (paths.limits <= paths.length)


def first_standing(paths: Paths, n_best: int) -> Standing:
    """Begins with nothing finished."""
    scores = paths.totals.new_full((len(paths.totals), n_best), -torch.inf)
    return Standing(scores, torch.zeros_like(paths.sentences))
