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
    """Gives `start, start + 1, …` for each start, as many numbers as its length says."""
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)


END, OPEN = -1, -2  # where an option leads if not to a state: nowhere, or nobody has looked yet
# Chances are multiples of it and draws too, so that a state's number plus a chance is exact below 2 ** 29 states.
RESOLUTION = 2.0**-24


class Transition(NamedTuple):
    """One way on from a state: how likely, to which state, and the ids that are spelled on the way."""

    probability: float
    target: int
    ids: Sequence[int]


class Automaton:
    """States, each with its options side by side in flat columns.

    An option's key is its state's number plus the chances of the options up to it, so one binary search finds what a
    walker in any state takes.
    """

    def __init__(self) -> None:
        self.keys, self.targets = array("d"), array("q")
        self.starts, self.lengths, self.ids = array("q"), array("q"), array("q")
        self.n_states = 0

    def add_state(self, options: Sequence[Transition]) -> int:
        """Appends a state; its number is given back."""
        upto = 0.0
        for chance, leads_to, ids in options:
            upto += chance
            self.keys.append(self.n_states + round(upto / RESOLUTION) * RESOLUTION)
            self.targets.append(leads_to)
            self.starts.append(len(self.ids))
            self.lengths.append(len(ids))
            self.ids.extend(ids)
        self.keys[-1] = self.n_states + 1.0
        self.n_states += 1
        return self.n_states - 1

    def add_open_state(self, chance: float) -> int:
        """Appends a state of two open options, the first with the given chance."""
        n = self.n_states
        self.keys.extend((n + round(chance / RESOLUTION) * RESOLUTION, n + 1.0))
        self.targets.extend((OPEN, OPEN))
        self.starts.extend((0, 0))
        self.lengths.extend((0, 0))
        self.n_states += 1
        return n

    def connect(self, option: int, leads_to: int, ids: Sequence[int]) -> None:
        """Says where an open option leads and what it spells."""
        self.targets[option], self.starts[option], self.lengths[option] = leads_to, len(self.ids), len(ids)
        if ids:
            self.ids.extend(ids)

    def sample(
        self, states: Ints, chance: np.random.Generator, look: Callable[[int], None]
    ) -> tuple[NDArray[np.int64], Ints]:
        """Sends a walker from each state to an end; gives all the ids they spell, and how many each does.

        `look` is told of open options that are taken, and must `lead` each somewhere.
        """
        walkers, taken = np.arange(len(states)), []
        n_steps = np.zeros(len(states), dtype=np.int64)
        while len(walkers):
            drawn = chance.random(len(walkers), dtype=np.float32)  # 24 bits
            options = np.searchsorted(_view(self.keys), states + drawn, side="right")
            for option in np.unique(options[_view(self.targets)[options] == OPEN]).tolist():
                look(option)
            taken.append((walkers, options))
            n_steps[walkers] += 1
            states = _view(self.targets)[options]
            going = states != END
            walkers, states = walkers[going], states[going]
        return self._gather_ids(taken, n_steps)

    def _gather_ids(self, taken: list[tuple[Ints, Ints]], n_steps: Ints) -> tuple[NDArray[np.int64], Ints]:
        before = np.cumsum(n_steps) - n_steps
        options = np.empty(int(n_steps.sum()), dtype=np.int64)
        for step, (walkers, some) in enumerate(taken):
            options[before[walkers] + step] = some
        lengths = _view(self.lengths)[options]
        ids = _view(self.ids)[ranges(_view(self.starts)[options], lengths)]
        upto = np.concatenate([[0], np.cumsum(lengths)])
        return ids, upto[before + n_steps] - upto[before]


def _view(column: array) -> NDArray:
    """Shows a column as it is; it cannot grow while the view is kept."""
    return np.frombuffer(column, dtype=column.typecode)


UNKNOWN_PENALTY = 10.0  # SentencePiece's: an unknown sign scores so much below the worst piece


class UnigramLattice:
    """Draws a segmentation x with P(x) ∝ ∏ p(piece) ** alpha, over all segmentations of a chunk.

    With `B(i) = log Σ_j exp(alpha · score(i, j) + B(j))`, computed from the end, the piece from i to j is taken with
    chance `exp(alpha · score(i, j) + B(j) − B(i))`: a state for each place, length · longest piece steps for a chunk.
    """

    def __init__(self, scores: Mapping[str, float], spell: Callable[[str], list[int]], alpha: float) -> None:
        self.scores, self.spell, self.alpha = scores, spell, alpha
        self.longest = max(map(len, scores), default=1)
        self.unknown = min(scores.values(), default=0.0) - UNKNOWN_PENALTY
        self.automaton = Automaton()

    def add(self, chunk: str) -> int:
        """Adds the states of a chunk; the first is given back."""
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
        """Adds a state from which there is one way."""
        return self.automaton.add_state([Transition(1.0, END, ids)])

    def expand(self, option: int) -> None:
        """Has nothing left to look at: all states of a chunk are added at once."""
        raise AssertionError(f"option {option} of a lattice is open")

    def _is_edge(self, piece: str) -> bool:
        return len(piece) == 1 or piece in self.scores  # a single sign that is no piece is spelled otherwise


# Two parts that make a piece: the piece's score, negated, and begin, middle and end. They sort as they are tried.
Merge = tuple[float, int, int, int]
# A chunk on the way: where its parts begin and end, and the merges that are still to be tried, in order. There are
# hundreds of thousands; the collector of garbage stops asking after plain tuples, but not after named ones.
MergeState = tuple[str, tuple[int, ...], tuple[Merge, ...]]


class BPEDropout:
    """Merges the parts of a chunk in the order of the model, each merge left out with the chance `dropout`.

    As in SentencePiece a merge that was left out is not tried again. What can happen to a chunk is a tree of
    decisions; it is looked at only where walkers come.
    """

    def __init__(self, scores: Mapping[str, float], spell: Callable[[str], list[int]], dropout: float):
        self.scores, self.spell, self.dropout = scores, spell, dropout
        self.automaton = Automaton()
        self.stages: list[MergeState | None] = []  # of each state; it has two options
        self.states: dict[MergeState, int] = {}

    def add(self, chunk: str) -> int:
        """Adds the first state of a chunk."""
        borders = tuple(range(len(chunk) + 1))
        found = (self._find_merge(chunk, *parts) for parts in zip(borders, borders[1:], borders[2:], strict=False))
        state, ids = self._state((chunk, borders, tuple(sorted(merge for merge in found if merge))))
        return state if state != END else self.add_fixed(ids)

    def add_fixed(self, ids: list[int]) -> int:
        """Adds a state from which there is one way; it too has two options."""
        self.stages.append(None)
        return self.automaton.add_state([Transition(0.0, END, ()), Transition(1.0, END, ids)])

    def expand(self, option: int) -> None:
        """Follows a decision: the first option of a state leaves its merge out, the second takes it."""
        stage = self.stages[option // 2]
        assert stage is not None, "a state with one way has no open option"
        chunk, borders, merges = stage
        self.automaton.connect(
            option, *self._state(self._apply_merge(stage) if option % 2 else (chunk, borders, merges[1:]))
        )

    def _state(self, stage: MergeState) -> tuple[int, list[int]]:
        """Gives the state in which a chunk is, or its end and the ids."""
        chunk, borders, merges = stage
        if not merges:
            return END, [i for begin, end in pairwise(borders) for i in self.spell(chunk[begin:end])]
        state = self.states.get(stage)
        if state is None:
            state = self.states[stage] = self.automaton.add_open_state(self.dropout)
            self.stages.append(stage)
        return state, []

    def _apply_merge(self, stage: MergeState) -> MergeState:
        """Takes the first merge: those of its two parts fall away, those of the new part come in."""
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


SPACE = "\u2581"  # how SentencePiece writes a space; one stands before each sentence
SHIFT = 21  # bits of a character


class ChunkSplitter:
    """Cuts between two characters that stand side by side in no piece, and around symbols.

    Words are cut apart, since no piece has a space inside, and Chinese wherever two signs never make a piece. It
    changes no segmentation: every one has a border there.
    """

    def __init__(self, pieces: Iterable[str], symbols: Sequence[str]):
        within = {ord(a) << SHIFT | ord(b) for piece in pieces for a, b in pairwise(piece)}
        self.within = np.array(sorted(within) or [-1], dtype=np.int64)
        longest_first = sorted(symbols, key=len, reverse=True)
        self.symbols = re.compile("|".join(map(re.escape, longest_first))) if symbols else None

    def split(self, texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
        """Gives the chunks of normalised texts, one after the other, and how many each text has."""
        spelled = [SPACE + text.replace(" ", SPACE) if text else "" for text in texts]
        joined = "".join(spelled)
        if not joined:
            return [], np.zeros(len(texts), dtype=np.int64)
        ends = np.cumsum([len(text) for text in spelled])
        borders = self._borders(joined, ends)
        places = np.flatnonzero(borders)
        chunks = [joined[a:b] for a, b in pairwise((0, *places.tolist()))]
        upto = np.searchsorted(places, ends, side="right")
        return chunks, np.diff(upto, prepend=0)

    def _borders(self, joined: str, ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Marks the places, 0 … n, where a chunk ends."""
        codes = np.frombuffer(joined.encode("utf-32-le"), "<u4").astype(np.int64)
        pairs = codes[:-1] << SHIFT | codes[1:]
        near = np.minimum(np.searchsorted(self.within, pairs), len(self.within) - 1)
        borders = np.concatenate([[False], self.within[near] != pairs, [True]])
        borders[ends] = True
        borders[0] = False  # the end of an empty text
        for found in self.symbols.finditer(joined) if self.symbols else ():
            borders[found.start() + 1 : found.end()] = False
            borders[[found.start(), found.end()]] = found.start() > 0, True
        return borders


MAX_OPTIONS = 1 << 20  # in memory, some hundred bytes each; beyond it all that was learned of chunks is forgotten


class Segmentations(NamedTuple):
    """Segmentations of some texts: all ids, and how many each has, (texts, variants)."""

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]


class SegmentationSampler:
    """Draws segmentations of texts by the scores of a SentencePiece model.

    The library draws too, but from a generator that gives other numbers in another process. Here a draw depends on the
    texts and the generator alone, and a chunk of text that recurs is looked at once.
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
        """Cuts each normalised text n times."""
        if len(self.parts.automaton.keys) > MAX_OPTIONS:
            self._reset()
        chunks, counts = self.splitter.split(texts)
        states = np.array([self._state(chunk) for chunk in chunks], dtype=np.int64)
        per_row = np.repeat(counts, n)
        chosen = ranges(np.repeat(np.cumsum(counts) - counts, n), per_row)
        ids, lengths = self.parts.automaton.sample(states[chosen], rng, self.parts.expand)
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
        """Gives the id of a piece; a sign that is none is spelled in bytes, or unknown."""
        if piece in self.ids:
            return [self.ids[piece]]
        return [self.bytes[f"<0x{byte:02X}>"] for byte in piece.encode()] if self.bytes else [self.unknown]

    def _without_runs(self, ids: NDArray[np.int64], upto: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
        """Makes one unknown piece of several side by side, as SentencePiece does; a text of its own begins anew."""
        again = np.zeros(len(ids) + 1, dtype=bool)
        again[1:-1] = (ids[1:] == self.unknown) & (ids[:-1] == self.unknown)
        again[upto] = False
        return ids[~again[:-1]], upto - np.concatenate([[0], np.cumsum(again)])[upto]
