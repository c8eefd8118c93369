"""When a search may stop: finished hypotheses against those that are still being written."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.decode.paths import Paths


@dataclass(frozen=True, eq=False)
class Standing:
    """The best scores of finished hypotheses of each sentence, and how many have finished."""

    scores: Float[np.ndarray, "B M"]  # largest first, −∞ where fewer have finished
    n_finished: Int[np.ndarray, " B"]

    def add(self, closed: Paths, length_penalty: float) -> "Standing":
        """Counts hypotheses that end with this token."""
        more = np.concatenate([self.scores, closed.totals / closed.length**length_penalty], axis=1)
        n_more = (closed.totals != -np.inf).sum(1)
        return Standing(-np.sort(-more, axis=1)[:, : self.scores.shape[1]], self.n_finished + n_more)

    def keep(self, places: Int[np.ndarray, " M"]) -> "Standing":
        """Goes on with some sentences only."""
        return Standing(self.scores[places], self.n_finished[places])

    def decided(self, paths: Paths, beam: int, length_penalty: float) -> Bool[np.ndarray, " B"]:
        """Tells which sentences have `beam` ends, can find no better one, or have no room left.

        A log-probability never grows. Divided by a power of the length it is best at the longest length for a positive
        penalty, and at the next one otherwise.
        """
        length = paths.limits.astype(np.float64) if length_penalty > 0 else paths.length + 1
        bound = paths.totals.max(1) / length**length_penalty
        return (self.n_finished >= beam) | (bound <= self.scores[:, -1]) | (paths.limits <= paths.length)


def first_standing(paths: Paths, n_best: int) -> Standing:
    """Begins with nothing finished."""
    return Standing(np.full((len(paths.totals), n_best), -np.inf), np.zeros_like(paths.sentences))
