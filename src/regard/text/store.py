"""The ids of one split on disk, read through a memory map."""

import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.text.whole import whole_folder

SIDES = ("src", "tgt")
WIDTHS = {"<u2": 1 << 16, "<u4": 1 << 32}  # ids that fit
BUFFER = 1 << 16  # ids or pairs that wait in memory


class IdStore:
    """All pairs of a split, side by side: flat ids, and offsets that say where each sentence begins.

    A folder of `src.bin` and `tgt.bin` (ids), `src.offsets` and `tgt.offsets` (int64, one more than there are pairs),
    all little-endian, and `store.json`.
    """

    def __init__(self, folder: Path):
        n_pairs, width = _read_head(folder)
        self.ids = {side: _mapped(folder / f"{side}.bin", width) for side in SIDES}
        self.offsets = {side: _mapped(folder / f"{side}.offsets", "<i8") for side in SIDES}
        for side in SIDES:
            offsets = self.offsets[side]
            if len(offsets) != n_pairs + 1 or offsets[-1] != len(self.ids[side]):
                raise ValueError(
                    f"{folder}: the store must have {n_pairs} {side} sentences, got {len(offsets) - 1} with "
                    f"{len(self.ids[side])} ids; the files are damaged, delete the folder to make it anew"
                )

    def __len__(self) -> int:
        return len(self.offsets["src"]) - 1

    def src(self, i: int) -> NDArray[np.unsignedinteger]:
        """Gives the source ids of pair i, as a view of the file."""
        return self._sentence("src", i)

    def tgt(self, i: int) -> NDArray[np.unsignedinteger]:
        """Gives the target ids of pair i, as a view of the file."""
        return self._sentence("tgt", i)

    def lengths(self) -> NDArray[np.int64]:
        """Gives the numbers of source and target ids of each pair, (n, 2)."""
        return np.stack([np.diff(self.offsets[side]) for side in SIDES], axis=1)

    def _sentence(self, side: str, i: int) -> NDArray[np.unsignedinteger]:
        if not 0 <= i < len(self):
            raise IndexError(f"a store of {len(self)} pairs has no pair {i}")
        return self.ids[side][self.offsets[side][i] : self.offsets[side][i + 1]]


class StoreWriter:
    """Appends pairs to the files of a store; memory stays bounded."""

    def __init__(self, folder: Path, vocab_size: int, files: ExitStack):
        self.folder = folder
        self.width = next(width for width, fitting in WIDTHS.items() if vocab_size <= fitting)
        self.n_pairs = 0
        self.sides = [_SideWriter(folder, side, self.width, files) for side in SIDES]

    def add(self, src: Sequence[int], tgt: Sequence[int]) -> None:
        """Appends one pair."""
        self.n_pairs += 1
        for side, ids in zip(self.sides, (src, tgt), strict=True):
            side.add(ids)

    def finish(self) -> None:
        """Writes what still waits, and the head without which it is no store."""
        for side in self.sides:
            side.flush()
        head = {"n_pairs": self.n_pairs, "width": self.width}
        (self.folder / "store.json").write_text(json.dumps(head), encoding="utf-8")


class _SideWriter:
    def __init__(self, folder: Path, side: str, width: str, files: ExitStack):
        self.ids_file: BinaryIO = files.enter_context((folder / f"{side}.bin").open("wb"))
        self.offsets_file: BinaryIO = files.enter_context((folder / f"{side}.offsets").open("wb"))
        self.width = width
        self.ids, self.offsets, self.end = array("I"), array("q", [0]), 0

    def add(self, ids: Sequence[int]) -> None:
        self.ids.extend(ids)
        self.end += len(ids)
        self.offsets.append(self.end)
        if len(self.ids) + len(self.offsets) > BUFFER:
            self.flush()

    def flush(self) -> None:
        self.ids_file.write(np.array(self.ids).astype(self.width).tobytes())
        self.offsets_file.write(np.array(self.offsets).astype("<i8").tobytes())
        del self.ids[:], self.offsets[:]


@contextmanager
def write_store(folder: Path, vocab_size: int) -> Iterator[StoreWriter]:
    """Gives a writer; the store is there when the block ends well, and not at all otherwise."""
    with whole_folder(folder) as draft, ExitStack() as files:
        writer = StoreWriter(draft, vocab_size, files)
        yield writer
        writer.finish()


def _read_head(folder: Path) -> tuple[int, str]:
    try:
        head = json.loads((folder / "store.json").read_text(encoding="utf-8"))
        n_pairs, width = int(head["n_pairs"]), str(head["width"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder}: a store must have a readable store.json, got {error!r}") from error
    if width not in WIDTHS:
        raise ValueError(f"{folder}: the width of ids must be one of {', '.join(WIDTHS)}, got {width!r}")
    return n_pairs, width


def _mapped(path: Path, width: str) -> NDArray:
    if not path.is_file() or path.stat().st_size % np.dtype(width).itemsize:
        raise ValueError(f"{path}: the file must be there and whole; delete the folder to make it anew")
    # An empty file cannot be mapped.
    return np.memmap(path, width, mode="r") if path.stat().st_size else np.zeros(0, width)
