"""Every hypothesis of a search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regard.config import DecodeSettings
from regard.padding import EOS
from regard.search.beam import advance, candidates, free_ends, free_of_charge, is_end, one_beginning
from regard.search.decoder import TopK
from regard.search.hypothesis import Hypothesis, begin, make_hypothesis
from regard.shapes import Float, Int

# A continuation was written on, or ended in EOS, or gave way to better ones, or was unfinished when the search ended.
FATES = ("kept", "ended", "dropped", "open")
ROOT = -1


@dataclass(frozen=True)
class TreeNode:
    """One token after those before it, and what became of it."""

    number: int
    parent: int  # the node before, or −1
    step: int  # tokens before it
    token: int
    piece: str
    log_prob: float  # its log-probability
    total: float  # and that of all up to it
    fate: str


@dataclass(frozen=True, eq=False)
class SearchTree:
    """The nodes of one search, each after its parent."""

    parents: Int[np.ndarray, " M"]
    tokens: Int[np.ndarray, " M"]
    log_probs: Float[np.ndarray, " M"]
    fates: Int[np.ndarray, " M"]  # places in FATES
    token_texts: Mapping[int, str]  # of each token
    best: int  # where the best hypothesis ends
    length_penalty: float

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def nodes(self) -> tuple[TreeNode, ...]:
        """Every continuation that the search was offered."""
        made: list[TreeNode] = []
        rows = zip(
            self.parents.tolist(), self.tokens.tolist(), self.log_probs.tolist(), self.fates.tolist(), strict=True
        )
        for number, (parent, token, log_prob, fate) in enumerate(rows):
            step, before = (0, 0.0) if parent == ROOT else (made[parent].step + 1, made[parent].total)
            made.append(
                TreeNode(number, parent, step, token, self.token_texts[token], log_prob, before + log_prob, FATES[fate])
            )
        return tuple(made)

    def leaves(self, *fates: str) -> list[TreeNode]:
        """Return the nodes where a hypothesis stopped, of these fates if any are named, the best total first.

        A node that was kept is a leaf if nothing that follows it was: all its continuations gave way to others.
        """
        went_on = {node.parent for node in self.nodes if node.fate != "dropped"}
        stopped = [node for node in self.nodes if node.fate != "kept" or node.number not in went_on]
        return sorted((node for node in stopped if not fates or node.fate in fates), key=lambda node: -node.total)

    def path(self, number: int) -> list[TreeNode]:
        """Return the nodes from the first token to this one."""
        if not 0 <= number < len(self):
            raise ValueError(f"a node must lie in 0 … {len(self) - 1}, got {number}")
        found = [self.nodes[number]]
        while found[-1].parent != ROOT:
            found.append(self.nodes[found[-1].parent])
        return found[::-1]

    def hypothesis(self, number: int) -> Hypothesis:
        """Return what was written up to a node, as a search gives it."""
        nodes = self.path(number)
        return make_hypothesis([node.token for node in nodes], [node.log_prob for node in nodes], self.length_penalty)

    def find(self, tokens: Sequence[int]) -> int:
        """Return the node where these tokens end; EOS is one of them where it was said."""
        after = {(node.parent, node.token): node.number for node in self.nodes}
        number = ROOT
        for token in tokens:
            if (number, token) not in after:
                raise ValueError(
                    f"a path must be one that the search was offered, got {list(tokens)}: see tree.leaves()"
                )
            number = after[number, token]
        return number


KEPT, ENDED, DROPPED, OPEN = range(len(FATES))
TokenTexts = Callable[[Sequence[int]], Mapping[int, str]]


class TreeBuilder:
    """Collects the nodes of a search tree, parents first."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.tokens: list[int] = []
        self.log_probs: list[float] = []
        self.fates: list[int] = []

    def add(self, parent: int, token: int, log_prob: float, fate: int) -> int:
        """Add a node, and return its number."""
        self.parents.append(parent)
        self.tokens.append(token)
        self.log_probs.append(log_prob)
        self.fates.append(fate)
        return len(self.parents) - 1

    def build(self, best: Hypothesis, token_texts: TokenTexts, length_penalty: float) -> SearchTree:
        """Return the tree, with its best hypothesis."""
        lists = (self.parents, self.tokens, self.log_probs, self.fates)
        parents, tokens, log_probs, fates = (
            np.array(values, dtype=kind)
            for values, kind in zip(lists, (np.int64, np.int64, float, np.int8), strict=True)
        )
        names = token_texts(sorted(set(self.tokens)))
        unranked = SearchTree(parents, tokens, log_probs, fates, names, 0, length_penalty)
        return SearchTree(parents, tokens, log_probs, fates, names, unranked.find(written_tokens(best)), length_penalty)


def written_tokens(hypothesis: Hypothesis) -> list[int]:
    """Return all tokens that were said, EOS included."""
    return [*hypothesis.ids, *[EOS] * hypothesis.finished]


def build_tree(
    found: list[Hypothesis], answers: list[TopK], settings: DecodeSettings, token_texts: TokenTexts
) -> SearchTree:
    """Rebuild the tree of one sentence, from what was found and what the search was told on the way."""
    builder = TreeBuilder()
    if settings.method == "beam":
        _add_beam(builder, as_searched(answers, found, settings), settings.beam)
    else:
        _add_paths(builder, found)
    return builder.build(found[0], token_texts, settings.length_penalty)


def as_searched(answers: list[TopK], found: list[Hypothesis], settings: DecodeSettings) -> list[TopK]:
    """Return what the search made of what it was told: a forced first token, and a forced end, cost nothing."""
    made = [free_of_charge(top_k, step, settings) for step, top_k in enumerate(answers)]
    ends = [each for each in found if each.finished and len(each.token_log_probs) == len(answers)]
    if settings.at_limit == "end" and any(each.token_log_probs[-1] == 0.0 for each in ends):
        made[-1], _ = free_ends(made[-1], begin(np.array([1]), settings.beam), settings)
    return made


def _add_paths(builder: TreeBuilder, found: list[Hypothesis]) -> None:
    """Add a branch for each hypothesis; those that begin alike are one until they part."""
    numbers: dict[tuple[int, int], int] = {}
    for hypothesis in found:
        number, tokens = ROOT, written_tokens(hypothesis)
        for index, (token, log_prob) in enumerate(zip(tokens, hypothesis.token_log_probs, strict=True)):
            last = OPEN if index == len(tokens) - 1 else KEPT
            fate = ENDED if token == EOS else last
            if (number, token) not in numbers:
                numbers[number, token] = builder.add(number, token, log_prob, fate)
            number = numbers[number, token]


def _add_beam(builder: TreeBuilder, answers: list[TopK], beam: int) -> None:
    """Decide again at each step as the search did, from the very numbers that it had."""
    paths = one_beginning(begin(np.array([len(answers)]), beam))
    ends = [ROOT] * beam  # the nodes of the hypotheses that are being written
    for step, top in enumerate(answers):
        best = candidates(top, paths.totals)
        after = advance(paths, best)
        going_on = KEPT if step < len(answers) - 1 else OPEN
        fates = dict.fromkeys(_pairs(after.rows[0], after.tokens[0]), going_on)
        ending = is_end(best)[0]
        fates |= dict.fromkeys(_pairs(best.rows[0, :beam][ending], best.tokens[0, :beam][ending]), ENDED)
        numbers = _add_candidates(builder, ends, paths.totals[0] > -np.inf, top, fates)
        ends = [numbers.get(pair, ROOT) for pair in _pairs(after.rows[0], after.tokens[0])]
        paths = after


def _add_candidates(
    builder: TreeBuilder, ends: list[int], live: np.ndarray, top: TopK, fates: dict[tuple[int, int], int]
) -> dict[tuple[int, int], int]:
    """Add all continuations that the search could choose from, and return their numbers."""
    numbers: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(live).tolist():
        for log_prob, token in zip(top.log_probs[row].tolist(), top.tokens[row].tolist(), strict=True):
            if log_prob > -np.inf:
                numbers[row, token] = builder.add(ends[row], token, log_prob, fates.get((row, token), DROPPED))
    return numbers


def _pairs(rows: np.ndarray, tokens: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(rows.tolist(), tokens.tolist(), strict=True))
