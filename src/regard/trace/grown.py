"""Trees of hypotheses, rebuilt from what the searches were told."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from regard.batch import EOS
from regard.config import DecodeSettings
from regard.decode.beam import advance, candidates, ends
from regard.decode.hypothesis import Hypothesis
from regard.decode.paths import first_paths
from regard.model.choices import Choices
from regard.trace.tree import FATES, ROOT, Tree

KEPT, ENDED, DROPPED, OPEN = range(len(FATES))
Pieces = Callable[[Sequence[int]], Mapping[int, str]]


class Sapling:
    """A tree that is still growing."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.tokens: list[int] = []
        self.gains: list[float] = []
        self.fates: list[int] = []

    def add(self, parent: int, token: int, gain: float, fate: int) -> int:
        """Grows a node, and gives its number."""
        self.parents.append(parent)
        self.tokens.append(token)
        self.gains.append(gain)
        self.fates.append(fate)
        return len(self.parents) - 1

    def tree(self, best: Hypothesis, pieces: Pieces, length_penalty: float) -> Tree:
        """Ends the growth."""
        lists = (self.parents, self.tokens, self.gains, self.fates)
        parents, tokens, gains, fates = (
            np.array(values, dtype=kind)
            for values, kind in zip(lists, (np.int64, np.int64, float, np.int8), strict=True)
        )
        names = pieces(sorted(set(self.tokens)))
        unranked = Tree(parents, tokens, gains, fates, names, 0, length_penalty)
        return Tree(parents, tokens, gains, fates, names, unranked.find(written(best)), length_penalty)


def written(hypothesis: Hypothesis) -> list[int]:
    """Gives all tokens that were said, EOS included."""
    return [*hypothesis.ids, *[EOS] * hypothesis.finished]


def grow(found: list[Hypothesis], answers: list[Choices], settings: DecodeSettings, pieces: Pieces) -> Tree:
    """Rebuilds the tree of one sentence, from what was found and what the search was told on the way."""
    sapling = Sapling()
    if settings.method == "beam":
        _grow_beam(sapling, answers, settings.beam)
    else:
        _grow_paths(sapling, found)
    return sapling.tree(found[0], pieces, settings.length_penalty)


def _grow_paths(sapling: Sapling, found: list[Hypothesis]) -> None:
    """Grows a branch for each hypothesis; those that begin alike are one until they part."""
    numbers: dict[tuple[int, int], int] = {}
    for hypothesis in found:
        number, tokens = ROOT, written(hypothesis)
        for place, (token, gain) in enumerate(zip(tokens, hypothesis.token_log_probs, strict=True)):
            last = OPEN if place == len(tokens) - 1 else KEPT
            fate = ENDED if token == EOS else last
            if (number, token) not in numbers:
                numbers[number, token] = sapling.add(number, token, gain, fate)
            number = numbers[number, token]


def _grow_beam(sapling: Sapling, answers: list[Choices], beam: int) -> None:
    """Decides again at each step as the search did, from the very numbers that it had."""
    paths = first_paths(np.array([len(answers)]), beam)
    paths.totals[:, 1:] = -np.inf
    places = [ROOT] * beam  # the nodes of the hypotheses that are being written
    for step, said in enumerate(answers):
        best = candidates(said, paths.totals)
        after = advance(paths, best)
        going_on = KEPT if step < len(answers) - 1 else OPEN
        fates = dict.fromkeys(_pairs(after.rows[0], after.tokens[0]), going_on)
        is_end = ends(best)[0]
        fates |= dict.fromkeys(_pairs(best.rows[0, :beam][is_end], best.tokens[0, :beam][is_end]), ENDED)
        numbers = _offer(sapling, places, paths.totals[0] > -np.inf, said, fates)
        places = [numbers.get(pair, ROOT) for pair in _pairs(after.rows[0], after.tokens[0])]
        paths = after


def _offer(
    sapling: Sapling, places: list[int], live: np.ndarray, said: Choices, fates: dict[tuple[int, int], int]
) -> dict[tuple[int, int], int]:
    """Grows all continuations that the search could choose from, and gives their numbers."""
    numbers: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(live).tolist():
        for gain, token in zip(said.gains[row].tolist(), said.tokens[row].tolist(), strict=True):
            if gain > -np.inf:
                numbers[row, token] = sapling.add(places[row], token, gain, fates.get((row, token), DROPPED))
    return numbers


def _pairs(rows: np.ndarray, tokens: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(rows.tolist(), tokens.tolist(), strict=True))
