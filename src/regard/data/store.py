"""Memory-mapped ids, epochs, windows of running text."""

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

TIMES, CUTS = 1, 2  # what is drawn; a trainer's own draws begin with its seed and its epoch
Origins = NDArray[np.unsignedinteger]


def draw_pairs(origins: Origins, weights: Sequence[float], seed: int, epoch: int) -> Ints:
    """Gives the pairs that an epoch sees, in their order, some of them several times and some perhaps not at all."""
    times = _times_seen(origins, weights, seed, epoch + 1) - _times_seen(origins, weights, seed, epoch)
    return np.repeat(np.arange(len(origins)), times)


def draw_variants(
    pairs: Ints, origins: Origins, weights: Sequence[float], n_variants: int, seed: int, epoch: int
) -> Ints:
    """Gives a source and a target segmentation, 1 … n_variants, for each of an epoch's pairs, (n, 2).

    Each time it is seen a pair comes in its next segmentation, so none recurs before all were seen; then source and
    target segmentations meet in other combinations.
    """
    if not n_variants:
        return np.zeros((len(pairs), 2), dtype=np.int64)
    turns = _times_seen(origins, weights, seed, epoch)[pairs] + _repeats(pairs)
    begin = np.random.default_rng([seed, 0, CUTS]).integers(n_variants, size=(len(origins), 2))[pairs]
    return 1 + (begin + np.stack([turns, turns + turns // n_variants], axis=1)) % n_variants


def _times_seen(origins: Origins, weights: Sequence[float], seed: int, epoch: int) -> Ints:
    """Counts how often each pair was seen before an epoch: `floor(weight · epoch + u)`, with a u < 1 of its own.

    That is weight times an epoch, as evenly as can be, and known without looking back.
    """
    if all(weight == 1 for weight in weights):
        return np.full(len(origins), epoch)
    begin = np.random.default_rng([seed, 0, TIMES]).random(len(origins))
    return np.floor(np.asarray(weights)[origins] * epoch + begin).astype(np.int64)


def _repeats(pairs: Ints) -> Ints:
    """Counts for each of some pairs in their order how often the same stands right before it."""
    places = np.arange(len(pairs))
    begins = np.concatenate([[True], pairs[1:] != pairs[:-1]])[: len(pairs)]
    return places - np.maximum.accumulate(np.where(begins, places, 0))


Side = Literal["src", "tgt"]
SIDES: tuple[Side, Side] = ("src", "tgt")
WIDTHS = {"<u2": 1 << 16, "<u4": 1 << 32}  # ids that fit
BUFFER = 1 << 16  # ids or sentences that wait in memory


@dataclass(frozen=True)
class StoreHeader:
    """What stands in `store.json`."""

    n_pairs: int
    width: str
    n_variants: int  # segmentations of each sentence besides the plain one
    weights: list[float]  # of the sources of pairs


class IdStore:
    """All pairs of a split, side by side: flat ids, and offsets that say where each segmentation begins.

    A folder of `src.bin` and `tgt.bin` (ids), `src.offsets` and `tgt.offsets` (int64, one more than there are
    segmentations), `origins.bin` (uint16, the source of each pair), all little-endian, and `store.json`. A sentence
    has its plain segmentation first and its variants after it.
    """

    def __init__(self, folder: Path):
        self.header = head = _read_header(folder)
        self.ids = {side: _memmap(folder / f"{side}.bin", head.width) for side in SIDES}
        self.offsets = {side: _memmap(folder / f"{side}.offsets", "<i8") for side in SIDES}
        self.origins = _memmap(folder / "origins.bin", "<u2")
        self.stride = 1 + head.n_variants
        for side in SIDES:
            offsets = self.offsets[side]
            if len(offsets) != head.n_pairs * self.stride + 1 or offsets[-1] != len(self.ids[side]):
                raise ValueError(
                    f"{folder}: the store must have {head.n_pairs} {side} sentences, got "
                    f"{(len(offsets) - 1) / self.stride:g} with {len(self.ids[side])} ids; "
                    "the files are damaged, delete the folder to make it anew"
                )
        if len(self.origins) != head.n_pairs or self.origins.max(initial=0) >= len(head.weights):
            raise ValueError(
                f"{folder}: the store must have a source for each of {head.n_pairs} pairs, got {len(self.origins)} of "
                f"{len(head.weights)} sources; the files are damaged, delete the folder to make it anew"
            )

    def __len__(self) -> int:
        return self.header.n_pairs

    def src(self, i: int) -> NDArray[np.unsignedinteger]:
        """Gives the source ids of pair i, plainly cut, as a view of the file."""
        return self._sentence("src", i)

    def tgt(self, i: int) -> NDArray[np.unsignedinteger]:
        """Gives the target ids of pair i, plainly cut, as a view of the file."""
        return self._sentence("tgt", i)

    def epoch_pairs(self, seed: int, epoch: int) -> Ints:
        """Gives the pairs that an epoch sees by their weights, in the order of the store, some several times."""
        return draw_pairs(self.origins, self.header.weights, seed, epoch)

    def draw_variants(self, seed: int, epoch: int, pairs: Ints | None = None) -> Ints:
        """Gives the segmentations of source and target in which an epoch sees its pairs, or each pair once, (n, 2)."""
        pairs = np.arange(len(self)) if pairs is None else pairs
        return draw_variants(pairs, self.origins, self.header.weights, self.header.n_variants, seed, epoch)

    def lengths(self, pairs: Ints | None = None, variants: Ints | None = None) -> Ints:
        """Gives the numbers of source and target ids, (n, 2), of some pairs or all, in some segmentations or plain."""
        pairs = np.arange(len(self)) if pairs is None else pairs
        variants = np.zeros((len(pairs), 2), dtype=np.int64) if variants is None else variants
        spans = (self._spans(side, pairs, variants[:, k]) for k, side in enumerate(SIDES))
        return np.stack([ends - starts for starts, ends in spans], axis=1)

    def rows(
        self, side: Side, pairs: Ints, variants: Ints, width: int, head: Sequence[int], tail: Sequence[int]
    ) -> tuple[Ints, Ints]:
        """Sets sentences between head and tail and fills up with 0; gives ids (n, width), and lengths with both.

        All are read at once: 1,000 rows of 40 ids take a quarter of a millisecond.
        """
        starts, ends = self._spans(side, pairs, variants)
        inner = ends - starts + len(head)
        lengths = inner + len(tail)
        if len(pairs) and int(lengths.max()) > width:
            raise ValueError(f"a sentence of {int(lengths.max())} ids does not fit a batch {width} wide")
        columns = np.arange(width)
        # Beyond a sentence its neighbours are read, and blotted out.
        places = (starts - len(head))[:, None] + columns
        ids = self.ids[side].take(places, mode="clip").astype(np.int64) if len(self.ids[side]) else places
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
            raise IndexError(f"a store of {len(self)} pairs has no pair {i}")
        offsets, slot = self.offsets[side], i * self.stride
        return self.ids[side][offsets[slot] : offsets[slot + 1]]


class StoreWriter:
    """Appends pairs to the files of a store; memory stays bounded."""

    def __init__(self, folder: Path, vocab_size: int, n_variants: int, weights: Sequence[float], files: ExitStack):
        width = next(width for width, fitting in WIDTHS.items() if vocab_size <= fitting)
        self.folder, self.width, self.n_variants, self.weights = folder, width, n_variants, weights
        self.n_pairs = 0
        self.sides = [_SideWriter(folder, side, self.width, files) for side in SIDES]
        self.origins: BinaryIO = files.enter_context((folder / "origins.bin").open("wb"))

    def add(self, src: Sequence[int], tgt: Sequence[int]) -> None:
        """Appends one pair."""
        assert self.n_variants == 0, "pairs with variants are appended in blocks"
        for side, ids in zip(self.sides, (src, tgt), strict=True):
            side.add(ids)
        self._count([0])

    def extend(self, src: Segmentations, tgt: Segmentations, origins: Sequence[int]) -> None:
        """Appends a block of pairs: for each the plain segmentation and its variants, and the number of its source."""
        for side, cuts in zip(self.sides, (src, tgt), strict=True):
            assert cuts.lengths.shape == (len(origins), 1 + self.n_variants), "each pair has all its segmentations"
            side.extend(cuts)
        self._count(origins)

    def finish(self) -> None:
        """Writes what still waits, and the head without which it is no store."""
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

    def extend(self, cuts: Segmentations) -> None:
        self.flush()
        self.ids_file.write(cuts.ids.astype(self.width).tobytes())
        self.offsets_file.write((self.end + np.cumsum(cuts.lengths)).astype("<i8").tobytes())
        self.end += len(cuts.ids)

    def flush(self) -> None:
        self.ids_file.write(np.array(self.ids).astype(self.width).tobytes())
        self.offsets_file.write(np.array(self.offsets).astype("<i8").tobytes())
        del self.ids[:], self.offsets[:]


@contextmanager
def write_store(
    folder: Path, vocab_size: int, n_variants: int = 0, weights: Sequence[float] = (1.0,)
) -> Iterator[StoreWriter]:
    """Gives a writer; the store is there when the block ends well, and not at all otherwise."""
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
        raise ValueError(f"{path}: the file must be there and whole; delete the folder to make it anew")
    # An empty file cannot be mapped. A plain array over the map is indexed faster than the map.
    return np.asarray(np.memmap(path, width, mode="r")) if path.stat().st_size else np.zeros(0, width)


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

    def epoch_pairs(self, seed: int, epoch: int) -> Ints:
        """Gives where an epoch's windows begin."""
        offset = int(np.random.default_rng([seed, epoch, OFFSET]).integers(self.width))
        return offset + self.width * np.arange(len(self))

    def draw_variants(self, seed: int, epoch: int, pairs: Ints | None = None) -> Ints:
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


def write_window_width(folder: Path, width: int) -> None:
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
