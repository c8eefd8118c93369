"""Texts cut where no piece can lie across, so that each chunk can be segmented by itself."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

SPACE = "\u2581"  # how SentencePiece writes a space; one stands before each sentence
SHIFT = 21  # bits of a character


class Cutter:
    """Cuts between two characters that stand side by side in no piece, and around symbols.

    Words are cut apart, since no piece has a space inside, and Chinese wherever two signs never make a piece. It
    changes no segmentation: every one has a border there.
    """

    def __init__(self, pieces: Iterable[str], symbols: Sequence[str]):
        within = {ord(a) << SHIFT | ord(b) for piece in pieces for a, b in pairwise(piece)}
        self.within = np.array(sorted(within) or [-1], dtype=np.int64)
        longest_first = sorted(symbols, key=len, reverse=True)
        self.symbols = re.compile("|".join(map(re.escape, longest_first))) if symbols else None

    def cut(self, texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
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
