"""Every hypothesis of a search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from regard.config import DecodeSettings
from regard.padding import EOS
from regard.search.beam import advance, candidates, is_end, one_beginning
from regard.search.decoder import TopK
from regard.search.hypothesis import Hypothesis, begin, make_hypothesis

# A continuation was written on, or ended in EOS, or gave way to better ones, or was unfinished when the search ended.
FATES = ("kept", "ended", "dropped", "open")
ROOT = -1


@dataclass(frozen=True)
class Node:
    """One token after those before it, and what became of it."""

    number: int
    parent: int  # the node before, or −1
    step: int  # tokens before it
    token: int
    piece: str
    gain: float  # its log-probability
    total: float  # and that of all up to it
    fate: str


@dataclass(frozen=True, eq=False)
class Tree:
    """The nodes of one search, each after its parent."""

    parents: Int[np.ndarray, " M"]
    tokens: Int[np.ndarray, " M"]
    gains: Float[np.ndarray, " M"]
    fates: Int[np.ndarray, " M"]  # places in FATES
    pieces: Mapping[int, str]  # of each token
    best: int  # where the best hypothesis ends
    length_penalty: float

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every continuation that the search was offered."""
        made: list[Node] = []
        rows = zip(self.parents.tolist(), self.tokens.tolist(), self.gains.tolist(), self.fates.tolist(), strict=True)
        for number, (parent, token, gain, fate) in enumerate(rows):
            step, before = (0, 0.0) if parent == ROOT else (made[parent].step + 1, made[parent].total)
            made.append(Node(number, parent, step, token, self.pieces[token], gain, before + gain, FATES[fate]))
        return tuple(made)

    def leaves(self, *fates: str) -> list[Node]:
        """Gives the nodes where a hypothesis stopped, of these fates if any are named, the best total first.

        A node that was kept is a leaf if nothing that follows it was: all its continuations gave way to others.
        """
        went_on = {node.parent for node in self.nodes if node.fate != "dropped"}
        stopped = [node for node in self.nodes if node.fate != "kept" or node.number not in went_on]
        return sorted((node for node in stopped if not fates or node.fate in fates), key=lambda node: -node.total)

    def path(self, number: int) -> list[Node]:
        """Gives the nodes from the first token to this one."""
        if not 0 <= number < len(self):
            raise ValueError(f"a node must lie in 0 … {len(self) - 1}, got {number}")
        found = [self.nodes[number]]
        while found[-1].parent != ROOT:
            found.append(self.nodes[found[-1].parent])
        return found[::-1]

    def hypothesis(self, number: int) -> Hypothesis:
        """Gives what was written up to a node, as a search gives it."""
        nodes = self.path(number)
        return make_hypothesis([node.token for node in nodes], [node.gain for node in nodes], self.length_penalty)

    def find(self, said: Sequence[int]) -> int:
        """Gives the node where these tokens end; EOS is one of them where it was said."""
        after = {(node.parent, node.token): node.number for node in self.nodes}
        number = ROOT
        for token in said:
            if (number, token) not in after:
                raise ValueError(f"a path must be one that the search was offered, got {list(said)}: see tree.leaves()")
            number = after[number, token]
        return number


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


def grow(found: list[Hypothesis], answers: list[TopK], settings: DecodeSettings, pieces: Pieces) -> Tree:
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


def _grow_beam(sapling: Sapling, answers: list[TopK], beam: int) -> None:
    """Decides again at each step as the search did, from the very numbers that it had."""
    paths = one_beginning(begin(np.array([len(answers)]), beam))
    places = [ROOT] * beam  # the nodes of the hypotheses that are being written
    for step, said in enumerate(answers):
        best = candidates(said, paths.totals)
        after = advance(paths, best)
        going_on = KEPT if step < len(answers) - 1 else OPEN
        fates = dict.fromkeys(_pairs(after.rows[0], after.tokens[0]), going_on)
        ending = is_end(best)[0]
        fates |= dict.fromkeys(_pairs(best.rows[0, :beam][ending], best.tokens[0, :beam][ending]), ENDED)
        numbers = _offer(sapling, places, paths.totals[0] > -np.inf, said, fates)
        places = [numbers.get(pair, ROOT) for pair in _pairs(after.rows[0], after.tokens[0])]
        paths = after


def _offer(
    sapling: Sapling, places: list[int], live: np.ndarray, said: TopK, fates: dict[tuple[int, int], int]
) -> dict[tuple[int, int], int]:
    """Grows all continuations that the search could choose from, and gives their numbers."""
    numbers: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(live).tolist():
        for gain, token in zip(said.log_probs[row].tolist(), said.tokens[row].tolist(), strict=True):
            if gain > -np.inf:
                numbers[row, token] = sapling.add(places[row], token, gain, fates.get((row, token), DROPPED))
    return numbers


def _pairs(rows: np.ndarray, tokens: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(rows.tolist(), tokens.tolist(), strict=True))
