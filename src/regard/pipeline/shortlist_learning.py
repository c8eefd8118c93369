"""Learning a lexical shortlist from sentence pairs (IBM Model 1)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from safetensors.numpy import save_file

from regard.atomic import atomic_file
from regard.checkpoint.arrays import write_arrays
from regard.data.tokenizer import Tokenizer
from regard.padding import EOS, Ids
from regard.pipeline.shortlist import ALWAYS, TABLE, Shortlist
from regard.shapes import Array, Float, Int

CHUNK = 2**20  # links at once
PAIRS = 10_000  # sentence pairs tokenized at once


class Links:
    """Every pair of a target piece with a source piece of its sentence, or with nothing; `kind` says which pieces.

    Kinds are in the order of their pieces. Those of all links lie in a temporary file of 4 bytes a link, and are made
    and read in chunks of whole sentences: memory grows with the sentences and the kinds, not with the links.
    """

    def __init__(self, src: Sequence[Ids], tgt: Sequence[Ids], nothing: int, chunk: int = CHUNK):
        self.lengths = np.array([len(ids) + 1 for ids in src], np.int64)
        self.said = np.array([len(ids) for ids in tgt], np.int64)
        self.stops = np.cumsum(self.lengths * self.said)  # links up to the end of each sentence
        first = np.flatnonzero(np.diff((self.stops - self.lengths * self.said) // chunk, prepend=-1)).tolist()
        self.groups = [slice(*each) for each in pairwise([*first, len(self.stops)])]  # sentences of each chunk
        width = int(max(chain.from_iterable(tgt), default=0)) + 1

        def names() -> Iterator[Int[Array, " links"]]:
            for some in self.groups:
                sources = np.fromiter(chain.from_iterable((nothing, *ids) for ids in src[some]), np.int64)
                targets = np.fromiter(chain.from_iterable(tgt[some]), np.int64)
                fans, places = self._places(some)
                starts = np.cumsum(self.lengths[some]) - self.lengths[some]
                step = np.arange(len(places)) - np.repeat(np.cumsum(fans) - fans, fans)
                first = np.repeat(starts, self.said[some])[places]
                yield sources[first + step] * width + targets[places]

        kinds = _distinct(names())
        with TemporaryFile() as file:
            for each in names():
                own, inverse = np.unique(each, return_inverse=True)
                np.searchsorted(kinds, own).astype(np.int32)[inverse].tofile(file)
            self.kind = np.memmap(file, np.int32, "r") if len(kinds) else np.zeros(0, np.int32)
        self.src, self.tgt = (part.astype(np.int32) for part in (kinds // width, kinds % width))

    def chunks(self) -> Iterator[tuple[Int[Array, " links"], Int[Array, " links"]]]:
        """Yield the kinds of some links, and which target piece of theirs each is of."""
        start = 0
        for some in self.groups:
            stop = int(self.stops[some.stop - 1])
            yield np.array(self.kind[start:stop]), self._places(some)[1]
            start = stop

    def _places(self, some: slice) -> tuple[Int[Array, " targets"], Int[Array, " links"]]:
        fans = np.repeat(self.lengths[some], self.said[some])  # links of each target piece
        return fans, np.repeat(np.arange(len(fans)), fans)


def _distinct(chunks: Iterable[Int[Array, " links"]]) -> Int[Array, " kinds"]:
    """Return the distinct values of all chunks in order, merging them when as many new ones as old have gathered."""
    kinds, waiting = np.zeros(0, np.int64), []
    for chunk in chunks:
        waiting.append(_merge([chunk]))
        if sum(map(len, waiting)) > len(kinds):
            kinds, waiting = _merge([kinds, *waiting]), []
    return _merge([kinds, *waiting])


def _merge(parts: Sequence[Int[Array, " _"]]) -> Int[Array, " _"]:
    values = np.concatenate(parts)
    values.sort(kind="stable")  # merges parts in order in linear time; np.unique would hash, 20 times as slow
    return values[np.diff(values, prepend=-1) > 0]


def translation_chances(links: Links, rounds: int = 5) -> Float[Array, " kinds"]:
    """Return `t(target | source)` of each kind of link by EM (Brown et al. 1993, aclanthology.org/J93-2003).

    Each target piece comes from one source piece of its sentence or from nothing, any of them as likely as another
    beforehand.
    """
    chances = np.ones(len(links.src))
    for _ in range(rounds):
        counts = np.zeros(len(chances))
        for kind, places in links.chunks():
            weights = chances[kind]
            weights /= np.bincount(places, weights)[places]
            np.add.at(counts, kind, weights)
        chances = counts / np.bincount(links.src, counts)[links.src]
    return chances


def best_targets(links: Links, chances: Float[Array, " kinds"], n_src: int, most: int) -> Int[Array, "n_src most"]:
    """Return the likeliest target pieces of each source piece, likeliest first, −1 where there are no more."""
    table = np.full((n_src, most), -1, np.int32)
    bounds = np.searchsorted(links.src, np.arange(n_src + 1))
    for row, (start, stop) in zip(table, pairwise(bounds), strict=True):
        order = np.argsort(-chances[start:stop], kind="stable")[:most]
        row[: len(order)] = links.tgt[start:stop][order]
    return table


def learn_shortlist(
    tokenizer: Tokenizer, pairs: Iterable[tuple[str, str]], frequent: int = 500, each: int = 50
) -> Shortlist:
    """Learn from sentence pairs which target pieces go with each source piece, and which are frequent in any case."""
    if frequent < 0 or each < 0:
        raise ValueError(f"frequent and each must be 0 or more, got {frequent} and {each}")
    src: list[Ids] = []
    tgt: list[Ids] = []
    rest = iter(pairs)
    while some := list(islice(rest, PAIRS)):  # as arrays, which take a fraction of the memory of lists
        src += [np.array(ids, np.uint32) for ids in tokenizer.encode_batch([one for one, _ in some], "src")]
        tgt += [np.array(ids, np.uint32) for ids in tokenizer.encode_batch([other for _, other in some], "tgt")]
    if not src:
        raise ValueError("a shortlist is learned from sentence pairs, got none")
    n_src, n_tgt = tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt")
    links = Links(src, tgt, nothing=n_src)
    counts = np.bincount(np.concatenate([np.asarray(ids, np.int64) for ids in tgt]), minlength=n_tgt)
    counts[:EOS] = 0
    often = np.argsort(-counts, kind="stable")[:frequent]
    always = np.unique(np.append(often[counts[often] > 0], EOS)).astype(np.int32)
    return Shortlist(always, best_targets(links, translation_chances(links), n_src, each), tokenizer.joint)


def save_shortlist(shortlist: Shortlist, path: Path) -> None:
    """Write a file, whole or not at all."""
    arrays, notes = {ALWAYS: shortlist.always, TABLE: shortlist.table}, {"copies": str(int(shortlist.copies))}
    with atomic_file(path) as draft:
        write_arrays(draft, arrays, notes, save_file)
