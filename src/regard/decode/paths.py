"""The hypotheses that are still being written."""

from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.batch import BOS
from regard.decode.hypothesis import Hypothesis, make_hypothesis


@dataclass(frozen=True, eq=False)
class Paths:
    """N hypotheses for each of the sentences that are left, all of one length, those of one sentence in a row.

    Each knows its last token and whose continuation it is, so a step costs the same however much was written. These
    are a few numbers, kept with NumPy: a call of PyTorch's takes longer than all that is done with them here.
    """

    sentences: Int[np.ndarray, " B"]  # which of the sentences that were given
    limits: Int[np.ndarray, " B"]  # tokens that their targets may have
    tokens: Int[np.ndarray, "B N"]  # the last one
    gains: Float[np.ndarray, "B N"]  # its log-probability
    totals: Float[np.ndarray, "B N"]  # and that of all; −∞ is a place that no hypothesis holds
    rows: Int[np.ndarray, "B N"]  # the rows of `before` that these continue
    before: "Paths | None"  # None where nothing was written yet
    length: int  # tokens written

    def last(self) -> Int[np.ndarray, " R"]:
        """Gives the token that each hypothesis ends with, for the model to read."""
        return self.tokens.flatten()

    def extend(
        self, tokens: Int[np.ndarray, "B N"], gains: Float[np.ndarray, "B N"], rows: Int[np.ndarray, "B N"]
    ) -> "Paths":
        """Continues some rows, each of the sentence that it stands in, by one token."""
        totals = self.totals.ravel()[rows] + gains
        return Paths(self.sentences, self.limits, tokens, gains, totals, rows, self, self.length + 1)

    def keep(self, places: Int[np.ndarray, " M"]) -> "Paths":
        """Goes on with some sentences only."""
        kept = (self.sentences, self.limits, self.tokens, self.gains, self.totals, self.rows)
        sentences, limits, tokens, gains, totals, rows = (x[places] for x in kept)
        return Paths(sentences, limits, tokens, gains, totals, rows, self.before, self.length)

    def hypotheses(self, places: Int[np.ndarray, " M"], length_penalty: float) -> list[list[Hypothesis]]:
        """Turns what stands at some places into hypotheses, each up to its EOS if it has one."""
        held = self.totals[places] != -np.inf
        tokens, gains = (x.tolist() for x in self._written(places, held))
        made = (make_hypothesis(*one, length_penalty) for one in zip(tokens, gains, strict=True))
        return [list(islice(made, n)) for n in held.sum(1).tolist()]

    def _written(
        self, places: Int[np.ndarray, " M"], held: Bool[np.ndarray, "M N"]
    ) -> tuple[Int[np.ndarray, "H T"], Float[np.ndarray, "H T"]]:
        """Goes back from some hypotheses to their beginnings."""
        n_hypotheses = self.totals.shape[1]
        rows = (places[:, None] * n_hypotheses + np.arange(n_hypotheses))[held]
        tokens, gains = np.empty((len(rows), self.length), np.int64), np.empty((len(rows), self.length))
        paths = self
        while paths.before is not None:
            tokens[:, paths.length - 1], gains[:, paths.length - 1] = (
                paths.tokens.ravel()[rows],
                paths.gains.ravel()[rows],
            )
            rows, paths = paths.rows.ravel()[rows], paths.before
        return tokens, gains


def first_paths(limits: Int[np.ndarray, " B"], n_hypotheses: int) -> Paths:
    """Lets all hypotheses begin with BOS."""
    B = len(limits)
    nothing = np.zeros((B, n_hypotheses))
    rows = np.arange(B * n_hypotheses).reshape(B, n_hypotheses)
    return Paths(np.arange(B), limits, np.full_like(rows, BOS), nothing, nothing.copy(), rows, None, 0)
