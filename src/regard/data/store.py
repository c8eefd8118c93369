"""Memory-mapped ids on disk: sentence pairs, windows of running text, and what an epoch sees of them."""

import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from regard.atomic import atomic_folder
from regard.data.subword_sampling import Ints, Segmentations

TIMES, VARIANTS, OFFSET = 1, 2, 3  # random streams; a trainer's own begin with its seed and its epoch
Origins = NDArray[np.unsignedinteger]


def draw_pairs(origins: Origins, weights: Sequence[float], seed: int, epoch: int) -> Ints:
    """Return the pairs of an epoch in order, some of them several times and some perhaps not at all."""
    times = _times_seen(origins, weights, seed, epoch + 1) - _times_seen(origins, weights, seed, epoch)
    return np.repeat(np.arange(len(origins)), times)


def draw_variants(
    pairs: Ints, origins: Origins, weights: Sequence[float], n_variants: int, seed: int, epoch: int
) -> Ints:
    """Return a source and a target segmentation, 1 … n_variants, for each of an epoch's pairs, (n, 2).

    Each time a pair is seen, its next segmentation is used, so none recurs before all were seen; then source and
    target segmentations are combined differently.
    """
    if not n_variants:
        return np.zeros((len(pairs), 2), dtype=np.int64)
    turns = _times_seen(origins, weights, seed, epoch)[pairs] + _repeats(pairs)
    begin = np.random.default_rng([seed, 0, VARIANTS]).integers(n_variants, size=(len(origins), 2))[pairs]
    return 1 + (begin + np.stack([turns, turns + turns // n_variants], axis=1)) % n_variants


def _times_seen(origins: Origins, weights: Sequence[float], seed: int, epoch: int) -> Ints:
    """Count how often each pair was seen before an epoch: `floor(weight · epoch + u)`, with its own u in [0, 1).

    That is `weight` times an epoch, as evenly as possible, and needs no history.
    """
    if all(weight == 1 for weight in weights):
        return np.full(len(origins), epoch)
    begin = np.random.default_rng([seed, 0, TIMES]).random(len(origins))
    return np.floor(np.asarray(weights)[origins] * epoch + begin).astype(np.int64)


def _repeats(pairs: Ints) -> Ints:
    """Count for each of the pairs, in order, how many equal ones come right before it."""
    positions = np.arange(len(pairs))
    begins = np.concatenate([[True], pairs[1:] != pairs[:-1]])[: len(pairs)]
    return positions - np.maximum.accumulate(np.where(begins, positions, 0))


Side = Literal["src", "tgt"]
SIDES: tuple[Side, Side] = ("src", "tgt")
WIDTHS = {"<u2": 1 << 16, "<u4": 1 << 32}  # ids that fit
BUFFER = 1 << 16  # ids or sentences held in memory


@dataclass(frozen=True)
class StoreHeader:
    """The contents of `store.json`."""

    n_pairs: int
    width: str
    n_variants: int  # segmentations of each sentence besides the plain one
    weights: list[float]  # of the sources of pairs


class IdStore:
    """All pairs of a split: flat ids, and the offsets at which segmentations begin.

    A folder of `src.bin` and `tgt.bin` (ids), `src.offsets` and `tgt.offsets` (int64, one more than there are
    segmentations), `origins.bin` (uint16, the source of each pair), all little-endian, and `store.json`. The plain
    segmentation of a sentence is followed by its variants.
    """

    def __init__(self, folder: Path):
        self.header = header = _read_header(folder)
        self.ids = {side: _memmap(folder / f"{side}.bin", header.width) for side in SIDES}
        self.offsets = {side: _memmap(folder / f"{side}.offsets", "<i8") for side in SIDES}
        self.origins = _memmap(folder / "origins.bin", "<u2")
        self.stride = 1 + header.n_variants
        for side in SIDES:
            offsets = self.offsets[side]
            if len(offsets) != header.n_pairs * self.stride + 1 or offsets[-1] != len(self.ids[side]):
                raise ValueError(
                    f"{folder}: the store must have {header.n_pairs} {side} sentences, got "
                    f"{(len(offsets) - 1) / self.stride:g} with {len(self.ids[side])} ids; "
                    "the files are damaged, delete the folder to prepare the text again"
                )
        if len(self.origins) != header.n_pairs or self.origins.max(initial=0) >= len(header.weights):
            raise ValueError(
                f"{folder}: the store must have a source for each of {header.n_pairs} pairs, got "
                f"{len(self.origins)} of {len(header.weights)} sources; the files are damaged, delete the folder "
                "to prepare the text again"
            )

    def __len__(self) -> int:
        return self.header.n_pairs

    def src(self, i: int) -> NDArray[np.unsignedinteger]:
        """Return the source ids of pair i, plain segmentation, as a view of the file."""
        return self._sentence("src", i)

    def tgt(self, i: int) -> NDArray[np.unsignedinteger]:
        """Return the target ids of pair i, plain segmentation, as a view of the file."""
        return self._sentence("tgt", i)

    def epoch_pairs(self, seed: int, epoch: int) -> Ints:
        """Return the pairs that an epoch sees by their weights, in the order of the store, some several times."""
        return draw_pairs(self.origins, self.header.weights, seed, epoch)

    def draw_variants(self, seed: int, epoch: int, pairs: Ints | None = None) -> Ints:
        """Return the source and target segmentations in which an epoch sees its pairs, or each pair once, (n, 2)."""
        pairs = np.arange(len(self)) if pairs is None else pairs
        return draw_variants(pairs, self.origins, self.header.weights, self.header.n_variants, seed, epoch)

    def lengths(self, pairs: Ints | None = None, variants: Ints | None = None) -> Ints:
        """Return the numbers of source and target ids, (n, 2), of some pairs or all, in some segmentations or plain."""
        pairs = np.arange(len(self)) if pairs is None else pairs
        variants = np.zeros((len(pairs), 2), dtype=np.int64) if variants is None else variants
        spans = (self._spans(side, pairs, variants[:, k]) for k, side in enumerate(SIDES))
        return np.stack([ends - starts for starts, ends in spans], axis=1)

    def rows(
        self, side: Side, pairs: Ints, variants: Ints, width: int, head: Sequence[int], tail: Sequence[int]
    ) -> tuple[Ints, Ints]:
        """Put sentences between head and tail, padded with 0; return ids (n, width), and lengths with head and tail.

        All are read at once: 1,000 rows of 40 ids take a quarter of a millisecond.
        """
        starts, ends = self._spans(side, pairs, variants)
        inner = ends - starts + len(head)
        lengths = inner + len(tail)
        if len(pairs) and int(lengths.max()) > width:
            raise ValueError(f"a sentence of {int(lengths.max())} ids does not fit a batch {width} wide")
        columns = np.arange(width)
        # Beyond the end of a sentence its neighbours are read, then set to 0.
        positions = (starts - len(head))[:, None] + columns
        ids = self.ids[side].take(positions, mode="clip").astype(np.int64) if len(self.ids[side]) else positions
        ids *= columns < inner[:, None]
        ids[:, : len(head)] = head
        for k, extra in enumerate(tail):
            ids[np.arange(len(pairs)), inner + k] = extra
        return ids, lengths

    def _spans(self, side: Side, pairs: Ints, variants: Ints) -> tuple[Ints, Ints]:
        slots = pairs * self.stride + variants
        return self.offsets[side][slots], self.offsets[side][slots + 1]

    def _sentence(self, side: Side, i: int) -> NDArray[np.unsignedinteger]:
        if not 0 <= i < len(self):
            raise IndexError(f"a pair must lie in 0 … {len(self) - 1}, got {i}")
        offsets, slot = self.offsets[side], i * self.stride
        return self.ids[side][offsets[slot] : offsets[slot + 1]]


class StoreWriter:
    """Appends pairs to the files of a store, with bounded memory."""

    def __init__(self, folder: Path, vocab_size: int, n_variants: int, weights: Sequence[float], files: ExitStack):
        width = next(width for width, fitting in WIDTHS.items() if vocab_size <= fitting)
        self.folder, self.width, self.n_variants, self.weights = folder, width, n_variants, weights
        self.n_pairs = 0
        self.sides = [_SideWriter(folder, side, self.width, files) for side in SIDES]
        self.origins: BinaryIO = files.enter_context((folder / "origins.bin").open("wb"))

    def add(self, src: Sequence[int], tgt: Sequence[int]) -> None:
        assert self.n_variants == 0, "pairs with variants are appended in blocks"
        for side, ids in zip(self.sides, (src, tgt), strict=True):
            side.add(ids)
        self._count([0])

    def extend(self, src: Segmentations, tgt: Segmentations, origins: Sequence[int]) -> None:
        """Append a block of pairs: for each the plain segmentation and its variants, and the index of its source."""
        for side, segmentations in zip(self.sides, (src, tgt), strict=True):
            assert segmentations.lengths.shape == (len(origins), 1 + self.n_variants), (
                "each pair has all its segmentations"
            )
            side.extend(segmentations)
        self._count(origins)

    def finish(self) -> None:
        """Write what is still in memory, and the header."""
        for side in self.sides:
            side.flush()
        head = StoreHeader(self.n_pairs, self.width, self.n_variants, list(self.weights))
        (self.folder / "store.json").write_text(json.dumps(asdict(head)), encoding="utf-8")

    def _count(self, origins: Sequence[int]) -> None:
        self.n_pairs += len(origins)
        self.origins.write(np.array(origins).astype("<u2").tobytes())


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

    def extend(self, segmentations: Segmentations) -> None:
        self.flush()
        self.ids_file.write(segmentations.ids.astype(self.width).tobytes())
        self.offsets_file.write((self.end + np.cumsum(segmentations.lengths)).astype("<i8").tobytes())
        self.end += len(segmentations.ids)

    def flush(self) -> None:
        self.ids_file.write(np.array(self.ids).astype(self.width).tobytes())
        self.offsets_file.write(np.array(self.offsets).astype("<i8").tobytes())
        del self.ids[:], self.offsets[:]


@contextmanager
def write_store(
    folder: Path, vocab_size: int, n_variants: int = 0, weights: Sequence[float] = (1.0,)
) -> Iterator[StoreWriter]:
    """Yield a writer; the store appears when the block ends without an exception."""
    with atomic_folder(folder) as draft, ExitStack() as files:
        writer = StoreWriter(draft, vocab_size, n_variants, weights, files)
        yield writer
        writer.finish()


def _read_header(folder: Path) -> StoreHeader:
    try:
        read = json.loads((folder / "store.json").read_text(encoding="utf-8"))
        weights = [float(weight) for weight in read["weights"]]
        head = StoreHeader(int(read["n_pairs"]), str(read["width"]), int(read["n_variants"]), weights)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder}: a store must have a readable store.json, got {error!r}") from error
    if head.width not in WIDTHS:
        raise ValueError(f"{folder}: the width of ids must be one of {', '.join(WIDTHS)}, got {head.width!r}")
    return head


def _memmap(path: Path, width: str) -> NDArray:
    if not path.is_file() or path.stat().st_size % np.dtype(width).itemsize:
        raise ValueError(f"{path}: the file must exist and be complete; delete the folder to prepare the text again")
    # An empty file cannot be mapped. A plain array over the map is faster to index than the map.
    return np.asarray(np.memmap(path, width, mode="r")) if path.stat().st_size else np.zeros(0, width)


WINDOW = "window.json"


class Windows:
    """Windows of `width` tokens of one text, each named by its first position; their sources are empty.

    A window has no EOS: in its place it has one more token. So it counts as a target of `width − 1` tokens, and
    `width` are predicted. An epoch lays windows side by side from an offset drawn from the seed and its number, so
    that all of the text is seen but less than two windows at its ends, and each token is predicted from a long context
    in one epoch and a short one in another.
    """

    def __init__(self, folder: Path):
        self.store = IdStore(folder)
        self.width = _read_width(folder)
        self.ids: NDArray[np.unsignedinteger] = self.store.ids["tgt"]

    def __len__(self) -> int:
        """Return the number of windows of an epoch, the same in all."""
        return max(0, len(self.ids) - self.width + 1) // self.width

    def src(self, i: int) -> NDArray[np.unsignedinteger]:
        """Return the empty source of a window."""
        return self.ids[:0]

    def tgt(self, i: int) -> NDArray[np.unsignedinteger]:
        """Return the ids of the window that begins at position i."""
        return self.ids[i : i + self.width]

    def epoch_pairs(self, seed: int, epoch: int) -> Ints:
        """Return the first positions of an epoch's windows."""
        offset = int(np.random.default_rng([seed, epoch, OFFSET]).integers(self.width))
        return offset + self.width * np.arange(len(self))

    def draw_variants(self, seed: int, epoch: int, pairs: Ints | None = None) -> Ints:
        """Return plain segmentations: running text has no variants."""
        return np.zeros((len(self) if pairs is None else len(pairs), 2), dtype=np.int64)

    def lengths(self, pairs: Ints | None = None, variants: Ints | None = None) -> Ints:
        """Return the numbers of source and target ids, (n, 2), the last of a window counted as its EOS."""
        n = len(self) if pairs is None else len(pairs)
        return np.tile(np.array([0, self.width - 1], dtype=np.int64), (n, 1))

    def rows(
        self, side: Side, pairs: Ints, variants: Ints, width: int, head: Sequence[int], tail: Sequence[int]
    ) -> tuple[Ints, Ints]:
        """Return ids (n, width) and lengths: for sources `tail` alone, for targets head and window."""
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


def write_window_width(folder: Path, width: int) -> None:
    """Make a store one of windows."""
    (folder / WINDOW).write_text(json.dumps({"width": width}), encoding="utf-8")


def open_store(folder: Path) -> IdStore | Windows:
    """Open a store of sentences, or of windows if it has a file with their width."""
    return Windows(folder) if (folder / WINDOW).is_file() else IdStore(folder)


def _read_width(folder: Path) -> int:
    try:
        return int(json.loads((folder / WINDOW).read_text(encoding="utf-8"))["width"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder}: a store of windows must have a readable {WINDOW}, got {error!r}") from error
