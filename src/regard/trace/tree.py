"""All that a search thought of: every hypothesis, kept, ended and dropped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from regard.decode.hypothesis import Hypothesis, make_hypothesis

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
