"""Many segmentations of the same texts, drawn by chance and the same in every process."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.text.chunks import Cutter
from regard.text.lattice import Lattice
from regard.text.merges import Merges
from regard.text.model_file import Kind, read_model
from regard.text.ranges import ranges

MAX_OPTIONS = 1 << 20  # in memory, some hundred bytes each; beyond it all that was learned of chunks is forgotten


class Cuts(NamedTuple):
    """Segmentations of some texts: all ids, and how many each has, (texts, variants)."""

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]


class Sampler:
    """Draws segmentations of texts by the scores of a SentencePiece model.

    The library draws too, but from a generator that gives other numbers in another process. Here a draw depends on the
    texts and the generator alone, and a chunk of text that recurs is looked at once.
    """

    def __init__(self, model: bytes, strength: float):
        file = read_model(model)
        kinds = {kind: {p.text: i for i, p in enumerate(file.pieces) if p.kind is kind} for kind in Kind}
        self.is_bpe, self.strength = file.is_bpe, strength
        self.ids, self.symbols, self.bytes = kinds[Kind.NORMAL], kinds[Kind.SYMBOL], kinds[Kind.BYTE]
        [self.unknown] = kinds[Kind.UNKNOWN].values()
        self.scores = {text: file.pieces[i].score for text, i in self.ids.items()}
        self.cutter = Cutter(self.ids, list(self.symbols))
        self._forget()

    def draw(self, texts: Sequence[str], n: int, chance: np.random.Generator) -> Cuts:
        """Cuts each normalised text n times."""
        if len(self.parts.walks.keys) > MAX_OPTIONS:
            self._forget()
        chunks, counts = self.cutter.cut(texts)
        states = np.array([self._state(chunk) for chunk in chunks], dtype=np.int64)
        per_row = np.repeat(counts, n)
        chosen = ranges(np.repeat(np.cumsum(counts) - counts, n), per_row)
        ids, lengths = self.parts.walks.walk(states[chosen], chance, self.parts.look)
        upto = np.concatenate([[0], np.cumsum(lengths)])[np.concatenate([[0], np.cumsum(per_row)])]
        ids, upto = (ids, upto) if self.bytes else self._without_runs(ids, upto)
        return Cuts(ids, np.diff(upto).reshape(-1, n))

    def _forget(self) -> None:
        if self.is_bpe:
            self.parts = Merges(self.scores, self._spell, self.strength)
        else:
            self.parts = Lattice(self.scores, self._spell, self.strength)
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
