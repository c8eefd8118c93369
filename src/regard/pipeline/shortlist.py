"""Lexical shortlists (IBM Model 1)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import save_file

from regard.atomic import atomic_file
from regard.checkpoint import read_file
from regard.data.tokenizer import Tokenizer
from regard.padding import EOS, Ids


class Links:
    """Every pair of a target piece with a source piece of its sentence, or with nothing; `kind` says which pieces."""

    def __init__(self, src: Sequence[Ids], tgt: Sequence[Ids], nothing: int):
        lengths = np.array([len(ids) + 1 for ids in src])
        said = np.array([len(ids) for ids in tgt])
        starts = np.cumsum(lengths) - lengths
        sources = np.fromiter(chain.from_iterable((nothing, *ids) for ids in src), np.int64)
        targets = np.fromiter(chain.from_iterable(tgt), np.int64)
        fans = np.repeat(lengths, said)  # links of each target piece
        first = np.repeat(starts, said)
        self.places = np.repeat(np.arange(len(targets)), fans)  # which target piece a link is of
        step = np.arange(len(self.places)) - np.repeat(np.cumsum(fans) - fans, fans)
        self.n_targets = len(targets)
        width = int(targets.max(initial=0)) + 1
        names = sources[np.repeat(first, fans) + step] * width + targets[self.places]
        kinds, self.kind = np.unique(names, return_inverse=True)
        self.src, self.tgt = kinds // width, kinds % width


def translation_chances(links: Links, rounds: int = 5) -> Float[np.ndarray, " kinds"]:
    """Return `t(target | source)` of each kind of link by EM (Brown et al. 1993, aclanthology.org/J93-2003).

    Each target piece comes from one source piece of its sentence or from nothing, any of them as likely as another
    beforehand.
    """
    chances = np.ones(len(links.src))
    for _ in range(rounds):
        weights = chances[links.kind]
        weights /= np.bincount(links.places, weights, links.n_targets)[links.places]
        counts = np.bincount(links.kind, weights, len(chances))
        chances = counts / np.bincount(links.src, counts)[links.src]
    return chances


def best_targets(
    links: Links, chances: Float[np.ndarray, " kinds"], n_src: int, most: int
) -> Int[np.ndarray, "n_src most"]:
    """Return the likeliest target pieces of each source piece, likeliest first, −1 where there are no more."""
    table = np.full((n_src, most), -1, np.int32)
    order = np.lexsort((links.tgt, -chances, links.src))
    src = links.src[order]
    rank = np.arange(len(src)) - np.searchsorted(src, src)
    kept = (rank < most) & (src < n_src)
    table[src[kept], rank[kept]] = links.tgt[order][kept]
    return table


ALWAYS, TABLE = "always", "table"  # names in the file


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Target pieces that may always be said, and those that each source piece suggests besides."""

    always: Int[np.ndarray, " A"]
    table: Int[np.ndarray, "n_src most"]  # −1 where there are no more
    copies: bool  # a source piece may be said as it is, where both sides have the same pieces

    def words(self, sentences: Sequence[Ids]) -> Int[np.ndarray, " W"]:
        """Return what may be said of some sentences that are translated together, in order; EOS is among it."""
        seen = np.unique(np.concatenate([np.asarray(ids, np.int64) for ids in sentences]))
        found = self.table[seen].ravel()
        parts = [self.always, found[found >= EOS], seen[seen >= EOS] if self.copies else found[:0]]
        return np.unique(np.concatenate(parts)).astype(np.int64)

    def save(self, path: Path) -> None:
        """Write a file, whole or not at all."""
        with atomic_file(path) as draft:
            draft.touch()
            mode = draft.stat().st_mode  # the library lets nobody but its user read what it writes
            save_file({ALWAYS: self.always, TABLE: self.table}, draft, {"copies": str(int(self.copies))})
            draft.chmod(mode)


def learn_shortlist(
    tokenizer: Tokenizer, pairs: Iterable[tuple[str, str]], frequent: int = 500, each: int = 50
) -> Shortlist:
    """Learn from sentence pairs which target pieces go with each source piece, and which are frequent in any case."""
    if frequent < 0 or each < 0:
        raise ValueError(f"frequent and each must be 0 or more, got {frequent} and {each}")
    texts = list(pairs)
    if not texts:
        raise ValueError("a shortlist is learned from sentence pairs, got none")
    src, tgt = (
        tokenizer.encode_batch([pair[side] for pair in texts], name) for side, name in enumerate(("src", "tgt"))
    )
    n_src, n_tgt = tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt")
    links = Links(src, tgt, nothing=n_src)
    counts = np.bincount(np.concatenate([np.asarray(ids, np.int64) for ids in tgt]), minlength=n_tgt)
    counts[:EOS] = 0
    often = np.argsort(-counts, kind="stable")[:frequent]
    always = np.unique(np.append(often[counts[often] > 0], EOS)).astype(np.int32)
    return Shortlist(always, best_targets(links, translation_chances(links), n_src, each), tokenizer.joint)


def load_shortlist(path: str | PathLike[str], tokenizer: Tokenizer) -> Shortlist:
    """Read what `save` wrote, and refuse what is of other pieces."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such shortlist: make one with regard shortlist")
    try:
        arrays, _, notes = read_file(path)
    except ValueError:
        arrays, notes = {}, {}
    if arrays.keys() != {ALWAYS, TABLE}:
        raise ValueError(f"{path}: this is not a shortlist, or not a whole one: make one with regard shortlist")
    always, table = (np.array(arrays[name]) for name in (ALWAYS, TABLE))
    sizes = len(table), max(int(always.max(initial=0)), int(table.max(initial=0))) + 1
    if sizes[0] != tokenizer.vocab_size("src") or sizes[1] > tokenizer.vocab_size("tgt"):
        raise ValueError(f"{path}: this shortlist is of other pieces than the model's: make one with regard shortlist")
    return Shortlist(always, table, notes.get("copies") == "1")
