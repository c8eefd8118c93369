"""Segmentations of a unigram model drawn by chance (Kudo 2018, arXiv:1804.10959)."""

import math
from collections.abc import Callable, Mapping

from regard.text.walks import END, Option, Walks

UNKNOWN_PENALTY = 10.0  # SentencePiece's: an unknown sign scores so much below the worst piece


class Lattice:
    """Draws a segmentation x with P(x) ∝ ∏ p(piece) ** alpha, over all segmentations of a chunk.

    With `B(i) = log Σ_j exp(alpha · score(i, j) + B(j))`, computed from the end, the piece from i to j is taken with
    chance `exp(alpha · score(i, j) + B(j) − B(i))`: a state for each place, length · longest piece steps for a chunk.
    """

    def __init__(self, scores: Mapping[str, float], spell: Callable[[str], list[int]], alpha: float) -> None:
        self.scores, self.spell, self.alpha = scores, spell, alpha
        self.longest = max(map(len, scores), default=1)
        self.unknown = min(scores.values(), default=0.0) - UNKNOWN_PENALTY
        self.walks = Walks()

    def add(self, chunk: str) -> int:
        """Adds the states of a chunk; the first is given back."""
        after, states = [0.0] * (len(chunk) + 1), [END] * (len(chunk) + 1)
        for i in reversed(range(len(chunk))):
            ends = [j for j in range(i + 1, min(i + self.longest, len(chunk)) + 1) if self._is_edge(chunk[i:j])]
            weights = [self.alpha * self.scores.get(chunk[i:j], self.unknown) + after[j] for j in ends]
            highest = max(weights)
            after[i] = highest + math.log(sum(math.exp(weight - highest) for weight in weights))
            states[i] = self.walks.add(
                [
                    Option(math.exp(weight - after[i]), states[j], self.spell(chunk[i:j]))
                    for j, weight in zip(ends, weights, strict=True)
                ]
            )
        return states[0]

    def add_fixed(self, ids: list[int]) -> int:
        """Adds a state from which there is one way."""
        return self.walks.add([Option(1.0, END, ids)])

    def look(self, option: int) -> None:
        """Has nothing left to look at: all states of a chunk are added at once."""
        raise AssertionError(f"option {option} of a lattice is open")

    def _is_edge(self, piece: str) -> bool:
        return len(piece) == 1 or piece in self.scores  # a single sign that is no piece is spelled otherwise
