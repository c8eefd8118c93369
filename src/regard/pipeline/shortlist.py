"""Lexical shortlists: the target pieces that a batch of sources suggests."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from regard.checkpoint.arrays import read_file
from regard.data.tokenizer import Tokenizer
from regard.padding import EOS, Ids
from regard.shapes import Array, Int, np

ALWAYS, TABLE = "always", "table"  # names in the file


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Target pieces that may always be said, and those that each source piece suggests besides."""

    always: Int[Array, " A"]
    table: Int[Array, "n_src most"]  # −1 where there are no more
    copies: bool  # a source piece may be said as it is, where both sides have the same pieces

    def words(self, sentences: Sequence[Ids]) -> Int[Array, " W"]:
        """Return what may be said of some sentences that are translated together, in order; EOS is among it."""
        seen = np.unique(np.concatenate([np.asarray(ids, np.int64) for ids in sentences]))
        found = self.table[seen].ravel()
        parts = [self.always, found[found >= EOS], seen[seen >= EOS] if self.copies else found[:0]]
        return np.unique(np.concatenate(parts)).astype(np.int64)


def load_shortlist(path: str | PathLike[str], tokenizer: Tokenizer) -> Shortlist:
    """Read what `save_shortlist` wrote, and refuse what is of other pieces."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such shortlist: make one with regard shortlist")
    try:
        arrays, notes = read_file(path)
    except ValueError:
        arrays, notes = {}, {}
    if arrays.keys() != {ALWAYS, TABLE}:
        raise ValueError(f"{path}: this is not a shortlist, or not a whole one: make one with regard shortlist")
    always, table = (np.array(arrays[name].numpy()) for name in (ALWAYS, TABLE))
    sizes = len(table), max(int(always.max(initial=0)), int(table.max(initial=0))) + 1
    if sizes[0] != tokenizer.vocab_size("src") or sizes[1] > tokenizer.vocab_size("tgt"):
        raise ValueError(f"{path}: this shortlist is of other pieces than the model's: make one with regard shortlist")
    return Shortlist(always, table, notes.get("copies") == "1")
