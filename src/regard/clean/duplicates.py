"""Which pairs were there before: hashes of pairs in sorted arrays, about eight bytes each."""

import re
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from regard.data.normalise import dedup_key
from regard.shapes import Array, Bool

_DIGITS = re.compile(r"\d+")
_SPLIT = "\x00"  # is in no text that was normalised


def exact_key(src: str, tgt: str) -> int:
    """Hash a pair as it is."""
    return _hash(f"{src}{_SPLIT}{tgt}")


def near_key(src: str, tgt: str) -> int:
    """Hash a pair without case, punctuation and spaces, any number standing for any other."""
    return _hash(f"{_fold(src)}{_SPLIT}{_fold(tgt)}")


def _fold(text: str) -> str:
    return dedup_key(_DIGITS.sub("0", text))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class SeenKeys:
    """The keys that were seen, in sorted arrays of which each is at least twice as long as the next.

    A new array is merged with those before it that are not, so a key is copied as often as the number of keys doubles,
    and a search looks into that many arrays.
    """

    def __init__(self) -> None:
        self.arrays: list[NDArray[np.uint64]] = []

    def add(self, keys: NDArray[np.uint64]) -> Bool[Array, " _"]:
        """Add keys, and tell of each whether it was there before, in an earlier call or earlier in this one."""
        seen = np.ones(len(keys), bool)
        fresh, first = np.unique(keys, return_index=True)
        seen[first] = False
        for array in self.arrays:
            places = np.minimum(np.searchsorted(array, keys), len(array) - 1)
            seen |= array[places] == keys
        self._insert(fresh[~seen[first]])
        return seen

    def _insert(self, keys: NDArray[np.uint64]) -> None:
        while self.arrays and len(self.arrays[-1]) < 2 * len(keys):
            keys = np.concatenate([self.arrays.pop(), keys])
            keys.sort(kind="stable")  # merges two sorted parts in linear time
        if len(keys):
            self.arrays.append(keys)

    def __len__(self) -> int:
        return sum(map(len, self.arrays))
