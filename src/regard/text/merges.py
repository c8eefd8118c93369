"""Segmentations of a BPE model drawn by chance (BPE dropout, Provilkov et al. 2020, arXiv:1910.13267)."""

from collections.abc import Callable, Mapping
from itertools import pairwise

from regard.text.walks import END, Option, Walks

# Two parts that make a piece: the piece's score, negated, and begin, middle and end. They sort as they are tried.
Merge = tuple[float, int, int, int]
# A chunk on the way: where its parts begin and end, and the merges that are still to be tried, in order. There are
# hundreds of thousands; the collector of garbage stops asking after plain tuples, but not after named ones.
Stage = tuple[str, tuple[int, ...], tuple[Merge, ...]]


class Merges:
    """Merges the parts of a chunk in the order of the model, each merge left out with the chance `dropout`.

    As in SentencePiece a merge that was left out is not tried again. What can happen to a chunk is a tree of
    decisions; it is looked at only where walkers come.
    """

    def __init__(self, scores: Mapping[str, float], spell: Callable[[str], list[int]], dropout: float):
        self.scores, self.spell, self.dropout = scores, spell, dropout
        self.walks = Walks()
        self.stages: list[Stage | None] = []  # of each state; it has two options
        self.states: dict[Stage, int] = {}

    def add(self, chunk: str) -> int:
        """Adds the first state of a chunk."""
        borders = tuple(range(len(chunk) + 1))
        found = (self._merge(chunk, *parts) for parts in zip(borders, borders[1:], borders[2:], strict=False))
        state, ids = self._arrive((chunk, borders, tuple(sorted(merge for merge in found if merge))))
        return state if state != END else self.add_fixed(ids)

    def add_fixed(self, ids: list[int]) -> int:
        """Adds a state from which there is one way; it too has two options."""
        self.stages.append(None)
        return self.walks.add([Option(0.0, END, ()), Option(1.0, END, ids)])

    def look(self, option: int) -> None:
        """Follows a decision: the first option of a state leaves its merge out, the second takes it."""
        stage = self.stages[option // 2]
        assert stage is not None, "a state with one way has no open option"
        chunk, borders, merges = stage
        self.walks.lead(option, *self._arrive(self._merged(stage) if option % 2 else (chunk, borders, merges[1:])))

    def _arrive(self, stage: Stage) -> tuple[int, list[int]]:
        """Gives the state in which a chunk is, or its end and the ids."""
        chunk, borders, merges = stage
        if not merges:
            return END, [i for begin, end in pairwise(borders) for i in self.spell(chunk[begin:end])]
        state = self.states.get(stage)
        if state is None:
            state = self.states[stage] = self.walks.add_decision(self.dropout)
            self.stages.append(stage)
        return state, []

    def _merged(self, stage: Stage) -> Stage:
        """Takes the first merge: those of its two parts fall away, those of the new part come in."""
        chunk, borders, ((_, begin, middle, end), *others) = stage
        at = borders.index(middle)
        merges = [other for other in others if other[3] <= begin or other[1] >= end]
        if at > 1 and (left := self._merge(chunk, borders[at - 2], begin, end)):
            merges.append(left)
        if at + 2 < len(borders) and (right := self._merge(chunk, begin, end, borders[at + 2])):
            merges.append(right)
        return chunk, borders[:at] + borders[at + 1 :], tuple(sorted(merges))

    def _merge(self, chunk: str, begin: int, middle: int, end: int) -> Merge | None:
        score = self.scores.get(chunk[begin:end])
        return None if score is None else (-score, begin, middle, end)
