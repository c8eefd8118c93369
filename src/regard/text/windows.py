"""A running text as a store of examples: cut into windows, each epoch at other places."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.text.ranges import Ints
from regard.text.store import IdStore, Side

WINDOW = "window.json"
OFFSET = 3  # what is drawn here; see `epoch.py` for the others


class Windows:
    """Windows of `width` pieces of one text, each named by the place where it begins; their sources say nothing.

    A window has no end of its own: where a sentence has EOS, it has one more piece. So it counts as a target of
    `width − 1` pieces, and `width` are to be said. An epoch lays windows side by side from an offset that is drawn
    from the seed and its number, so that all of the text is seen, less than two windows at its ends aside, and each
    piece is met with much before it in one epoch and little in another.
    """

    def __init__(self, folder: Path):
        self.store = IdStore(folder)
        self.width = _read_width(folder)
        self.ids: NDArray[np.unsignedinteger] = self.store.ids["tgt"]

    def __len__(self) -> int:
        """Gives the number of windows of an epoch, the same in all."""
        return max(0, len(self.ids) - self.width + 1) // self.width

    def src(self, i: int) -> NDArray[np.unsignedinteger]:
        """Gives what is read before a window: nothing."""
        return self.ids[:0]

    def tgt(self, i: int) -> NDArray[np.unsignedinteger]:
        """Gives the ids of the window that begins at place i."""
        return self.ids[i : i + self.width]

    def epoch(self, seed: int, epoch: int) -> Ints:
        """Gives where an epoch's windows begin."""
        offset = int(np.random.default_rng([seed, epoch, OFFSET]).integers(self.width))
        return offset + self.width * np.arange(len(self))

    def draw(self, seed: int, epoch: int, pairs: Ints | None = None) -> Ints:
        """Gives segmentations as other stores do; a text has one."""
        return np.zeros((len(self) if pairs is None else len(pairs), 2), dtype=np.int64)

    def lengths(self, pairs: Ints | None = None, variants: Ints | None = None) -> Ints:
        """Gives the numbers of source and target ids, (n, 2), the last of a window counted as its end."""
        n = len(self) if pairs is None else len(pairs)
        return np.tile(np.array([0, self.width - 1], dtype=np.int64), (n, 1))

    def rows(
        self, side: Side, pairs: Ints, variants: Ints, width: int, head: Sequence[int], tail: Sequence[int]
    ) -> tuple[Ints, Ints]:
        """Gives ids (n, width) and lengths: of sources `tail` alone, of targets head and window."""
        n = len(pairs)
        ids = np.zeros((n, width), dtype=np.int64)
        if side == "src":
            ids[:, : len(tail)] = tail
            return ids, np.full(n, len(tail))
        length = len(head) + self.width
        if length > width:
            raise ValueError(f"a window of {length} ids does not fit a batch {width} wide")
        ids[:, : len(head)] = head
        ids[:, len(head) : length] = self.ids.take(pairs[:, None] + np.arange(self.width))
        return ids, np.full(n, length)


def write_width(folder: Path, width: int) -> None:
    """Makes a store one of windows."""
    (folder / WINDOW).write_text(json.dumps({"width": width}), encoding="utf-8")


def open_store(folder: Path) -> IdStore | Windows:
    """Opens a store of sentences, or of windows where it says how wide they are."""
    return Windows(folder) if (folder / WINDOW).is_file() else IdStore(folder)


def _read_width(folder: Path) -> int:
    try:
        return int(json.loads((folder / WINDOW).read_text(encoding="utf-8"))["width"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder}: a store of windows must have a readable {WINDOW}, got {error!r}") from error
