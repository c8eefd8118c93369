"""Subword regularisation: unigram sampling and BPE dropout."""

import math
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.tokenizer import PieceType, parse_model

Ints = NDArray[np.int64]


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """Return `start, start + 1, …, start + length − 1` for each start and length, concatenated."""
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)


END, OPEN = -1, -2  # targets of a transition other than a state: the end, or not expanded yet
# Probabilities and draws are multiples of it, so that a state's number plus one is exact below 2 ** 29 states.
RESOLUTION = 2.0**-24


class Transition(NamedTuple):
    """A transition from a state: its probability, the next state, and the ids it emits."""

    probability: float
    target: int
    ids: Sequence[int]


class Automaton:
    """A weighted automaton that emits ids: states with their transitions in flat columns.

    A transition's key is its state's number plus the cumulative probability up to it, so one binary search draws the
    transitions of any number of states.
    """

    def __init__(self) -> None:
        self.keys, self.targets = array("d"), array("q")
        self.starts, self.lengths, self.ids = array("q"), array("q"), array("q")
        self.n_states = 0

    def add_state(self, transitions: Sequence[Transition]) -> int:
        """Append a state and return its number."""
        upto = 0.0
        for probability, target, ids in transitions:
            upto += probability
            self.keys.append(self.n_states + round(upto / RESOLUTION) * RESOLUTION)
            self.targets.append(target)
            self.starts.append(len(self.ids))
            self.lengths.append(len(ids))
            self.ids.extend(ids)
        self.keys[-1] = self.n_states + 1.0
        self.n_states += 1
        return self.n_states - 1

    def add_open_state(self, probability: float) -> int:
        """Append a state of two unexpanded transitions, the first with the given probability."""
        n = self.n_states
        self.keys.extend((n + round(probability / RESOLUTION) * RESOLUTION, n + 1.0))
        self.targets.extend((OPEN, OPEN))
        self.starts.extend((0, 0))
        self.lengths.extend((0, 0))
        self.n_states += 1
        return n

    def connect(self, transition: int, target: int, ids: Sequence[int]) -> None:
        """Set the target and the ids of an unexpanded transition."""
        self.targets[transition], self.starts[transition], self.lengths[transition] = target, len(self.ids), len(ids)
        if ids:
            self.ids.extend(ids)

    def sample(
        self, states: Ints, rng: np.random.Generator, expand: Callable[[int], None]
    ) -> tuple[NDArray[np.int64], Ints]:
        """Draw a path from each state to the end; return the ids of all paths, and the number of ids of each.

        `expand` is called for each unexpanded transition that is drawn, and must `connect` it.
        """
        paths, steps = np.arange(len(states)), []
        n_steps = np.zeros(len(states), dtype=np.int64)
        while len(paths):
            draws = rng.random(len(paths), dtype=np.float32)  # 24 bits
            transitions = np.searchsorted(_view(self.keys), states + draws, side="right")
            for transition in np.unique(transitions[_view(self.targets)[transitions] == OPEN]).tolist():
                expand(transition)
            steps.append((paths, transitions))
            n_steps[paths] += 1
            states = _view(self.targets)[transitions]
            unfinished = states != END
            paths, states = paths[unfinished], states[unfinished]
        return self._gather_ids(steps, n_steps)

    def _gather_ids(self, steps: list[tuple[Ints, Ints]], n_steps: Ints) -> tuple[NDArray[np.int64], Ints]:
        before = np.cumsum(n_steps) - n_steps
        transitions = np.empty(int(n_steps.sum()), dtype=np.int64)
        for step, (paths, some) in enumerate(steps):
            transitions[before[paths] + step] = some
        lengths = _view(self.lengths)[transitions]
        ids = _view(self.ids)[ranges(_view(self.starts)[transitions], lengths)]
        upto = np.concatenate([[0], np.cumsum(lengths)])
        return ids, upto[before + n_steps] - upto[before]


def _view(column: array) -> NDArray:
    """View a column without a copy; it cannot grow while the view exists."""
    return np.frombuffer(column, dtype=column.typecode)


UNKNOWN_PENALTY = 10.0  # SentencePiece's: how far an unknown character scores below the worst piece


class UnigramLattice:
    """Draws a segmentation x with P(x) ∝ ∏ p(piece) ** alpha, over all segmentations of a chunk.

    With `B(i) = log Σ_j exp(alpha · score(i, j) + B(j))`, computed from the end, the piece from i to j has the
    probability `exp(alpha · score(i, j) + B(j) − B(i))`: one state for each position, O(length · longest piece) time.
    """

    def __init__(self, scores: Mapping[str, float], spell: Callable[[str], list[int]], alpha: float) -> None:
        self.scores, self.spell, self.alpha = scores, spell, alpha
        self.longest = max(map(len, scores), default=1)
        self.unknown = min(scores.values(), default=0.0) - UNKNOWN_PENALTY
        self.automaton = Automaton()

    def add(self, chunk: str) -> int:
        """Add the states of a chunk and return the first."""
        after, states = [0.0] * (len(chunk) + 1), [END] * (len(chunk) + 1)
        for i in reversed(range(len(chunk))):
            ends = [j for j in range(i + 1, min(i + self.longest, len(chunk)) + 1) if self._is_edge(chunk[i:j])]
            weights = [self.alpha * self.scores.get(chunk[i:j], self.unknown) + after[j] for j in ends]
            highest = max(weights)
            after[i] = highest + math.log(sum(math.exp(weight - highest) for weight in weights))
            states[i] = self.automaton.add_state(
                [
                    Transition(math.exp(weight - after[i]), states[j], self.spell(chunk[i:j]))
                    for j, weight in zip(ends, weights, strict=True)
                ]
            )
        return states[0]

    def add_fixed(self, ids: list[int]) -> int:
        """Add a state with one transition."""
        return self.automaton.add_state([Transition(1.0, END, ids)])

    def expand(self, transition: int) -> None:
        """Raise AssertionError: all states of a chunk are added at once."""
        raise AssertionError(f"transition {transition} of a lattice is not expanded")

    def _is_edge(self, piece: str) -> bool:
        return len(piece) == 1 or piece in self.scores  # a character that is not a piece becomes bytes or unknown


# Two parts that make a piece: the piece's negated score, and begin, middle and end. They sort in the order of trial.
Merge = tuple[float, int, int, int]
# A partly merged chunk: the borders of its parts, and the merges still to be tried, in order. There are hundreds of
# thousands; the garbage collector untracks plain tuples, but not named ones.
MergeState = tuple[str, tuple[int, ...], tuple[Merge, ...]]


class BPEDropout:
    """Merges the parts of a chunk in the order of the model, each merge skipped with the probability `dropout`.

    As in SentencePiece, a merge that was skipped is not tried again. The decisions about a chunk form a tree, which is
    expanded only where a path goes.
    """

    def __init__(self, scores: Mapping[str, float], spell: Callable[[str], list[int]], dropout: float):
        self.scores, self.spell, self.dropout = scores, spell, dropout
        self.automaton = Automaton()
        self.stages: list[MergeState | None] = []  # of each state, which has two transitions
        self.states: dict[MergeState, int] = {}

    def add(self, chunk: str) -> int:
        """Add the first state of a chunk."""
        borders = tuple(range(len(chunk) + 1))
        merges = (self._find_merge(chunk, *parts) for parts in zip(borders, borders[1:], borders[2:], strict=False))
        state, ids = self._state((chunk, borders, tuple(sorted(merge for merge in merges if merge))))
        return state if state != END else self.add_fixed(ids)

    def add_fixed(self, ids: list[int]) -> int:
        """Add a state with one possible transition; it too has two."""
        self.stages.append(None)
        return self.automaton.add_state([Transition(0.0, END, ()), Transition(1.0, END, ids)])

    def expand(self, transition: int) -> None:
        """Expand a decision: the first transition of a state skips its merge, the second applies it."""
        stage = self.stages[transition // 2]
        assert stage is not None, "a state with one transition has none to expand"
        chunk, borders, merges = stage
        self.automaton.connect(
            transition, *self._state(self._apply_merge(stage) if transition % 2 else (chunk, borders, merges[1:]))
        )

    def _state(self, stage: MergeState) -> tuple[int, list[int]]:
        """Return the state of a chunk, or the end and the ids."""
        chunk, borders, merges = stage
        if not merges:
            return END, [i for begin, end in pairwise(borders) for i in self.spell(chunk[begin:end])]
        state = self.states.get(stage)
        if state is None:
            state = self.states[stage] = self.automaton.add_open_state(self.dropout)
            self.stages.append(stage)
        return state, []

    def _apply_merge(self, stage: MergeState) -> MergeState:
        """Apply the first merge: drop the merges of its two parts and add those of the new part."""
        chunk, borders, ((_, begin, middle, end), *others) = stage
        at = borders.index(middle)
        merges = [other for other in others if other[3] <= begin or other[1] >= end]
        if at > 1 and (left := self._find_merge(chunk, borders[at - 2], begin, end)):
            merges.append(left)
        if at + 2 < len(borders) and (right := self._find_merge(chunk, begin, end, borders[at + 2])):
            merges.append(right)
        return chunk, borders[:at] + borders[at + 1 :], tuple(sorted(merges))

    def _find_merge(self, chunk: str, begin: int, middle: int, end: int) -> Merge | None:
        score = self.scores.get(chunk[begin:end])
        return None if score is None else (-score, begin, middle, end)


SPACE = "\u2581"  # SentencePiece's space; each sentence begins with one
SHIFT = 21  # bits of a character


class ChunkSplitter:
    """Splits text between two characters that are adjacent in no piece, and around symbols.

    That separates words, since no piece has a space inside, and Chinese characters that are never in one piece. It
    does not change the set of segmentations: all of them have a border there.
    """

    def __init__(self, pieces: Iterable[str], symbols: Sequence[str]):
        within = {ord(a) << SHIFT | ord(b) for piece in pieces for a, b in pairwise(piece)}
        self.within = np.array(sorted(within) or [-1], dtype=np.int64)
        longest_first = sorted(symbols, key=len, reverse=True)
        self.symbols = re.compile("|".join(map(re.escape, longest_first))) if symbols else None

    def split(self, texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
        """Return the chunks of normalised texts, concatenated, and how many each text has."""
        spelled = [SPACE + text.replace(" ", SPACE) if text else "" for text in texts]
        joined = "".join(spelled)
        if not joined:
            return [], np.zeros(len(texts), dtype=np.int64)
        ends = np.cumsum([len(text) for text in spelled])
        borders = self._borders(joined, ends)
        positions = np.flatnonzero(borders)
        chunks = [joined[a:b] for a, b in pairwise((0, *positions.tolist()))]
        upto = np.searchsorted(positions, ends, side="right")
        return chunks, np.diff(upto, prepend=0)

    def _borders(self, joined: str, ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mark the positions, 0 … n, where a chunk ends."""
        codes = np.frombuffer(joined.encode("utf-32-le"), "<u4").astype(np.int64)
        pairs = codes[:-1] << SHIFT | codes[1:]
        near = np.minimum(np.searchsorted(self.within, pairs), len(self.within) - 1)
        borders = np.concatenate([[False], self.within[near] != pairs, [True]])
        borders[ends] = True
        borders[0] = False  # the end of an empty text
        for match in self.symbols.finditer(joined) if self.symbols else ():
            borders[match.start() + 1 : match.end()] = False
            borders[[match.start(), match.end()]] = match.start() > 0, True
        return borders


MAX_TRANSITIONS = 1 << 20  # transitions in memory, some hundred bytes each; beyond it all chunks are dropped


class Segmentations(NamedTuple):
    """Segmentations of some texts: all ids, and the number of ids of each, (texts, variants)."""

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]


class SegmentationSampler:
    """Draws segmentations of texts by the scores of a SentencePiece model.

    The library samples too, but its generator differs from process to process. Here a sample depends on the texts and
    the generator alone, and a chunk that recurs is analysed once.
    """

    def __init__(self, model: bytes, strength: float):
        file = parse_model(model)
        kinds = {kind: {p.text: i for i, p in enumerate(file.pieces) if p.kind is kind} for kind in PieceType}
        self.is_bpe, self.strength = file.is_bpe, strength
        self.ids, self.symbols, self.bytes = kinds[PieceType.NORMAL], kinds[PieceType.SYMBOL], kinds[PieceType.BYTE]
        [self.unknown] = kinds[PieceType.UNKNOWN].values()
        self.scores = {text: file.pieces[i].score for text, i in self.ids.items()}
        self.splitter = ChunkSplitter(self.ids, list(self.symbols))
        self._reset()

    def sample(self, texts: Sequence[str], n: int, rng: np.random.Generator) -> Segmentations:
        """Draw n segmentations of each normalised text."""
        if len(self.parts.automaton.keys) > MAX_TRANSITIONS:
            self._reset()
        chunks, counts = self.splitter.split(texts)
        states = np.array([self._state(chunk) for chunk in chunks], dtype=np.int64)
        per_row = np.repeat(counts, n)
        rows = ranges(np.repeat(np.cumsum(counts) - counts, n), per_row)
        ids, lengths = self.parts.automaton.sample(states[rows], rng, self.parts.expand)
        upto = np.concatenate([[0], np.cumsum(lengths)])[np.concatenate([[0], np.cumsum(per_row)])]
        ids, upto = (ids, upto) if self.bytes else self._without_runs(ids, upto)
        return Segmentations(ids, np.diff(upto).reshape(-1, n))

    def _reset(self) -> None:
        if self.is_bpe:
            self.parts = BPEDropout(self.scores, self._spell, self.strength)
        else:
            self.parts = UnigramLattice(self.scores, self._spell, self.strength)
        self.states: dict[str, int] = {}

    def _state(self, chunk: str) -> int:
        state = self.states.get(chunk)
        if state is None:
            symbol = self.symbols.get(chunk)
            state = self.parts.add(chunk) if symbol is None else self.parts.add_fixed([symbol])
            self.states[chunk] = state
        return state

    def _spell(self, piece: str) -> list[int]:
        """Return the id of a piece; a character that is not a piece becomes bytes, or unknown."""
        if piece in self.ids:
            return [self.ids[piece]]
        return [self.bytes[f"<0x{byte:02X}>"] for byte in piece.encode()] if self.bytes else [self.unknown]

    def _without_runs(self, ids: NDArray[np.int64], upto: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
        """Merge adjacent unknown pieces of a text into one, as SentencePiece does."""
        repeated = np.zeros(len(ids) + 1, dtype=bool)
        repeated[1:-1] = (ids[1:] == self.unknown) & (ids[:-1] == self.unknown)
        repeated[upto] = False
        return ids[~repeated[:-1]], upto - np.concatenate([[0], np.cumsum(repeated)])[upto]
