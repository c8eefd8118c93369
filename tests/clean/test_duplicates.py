"""Duplicates: keys that near-duplicates share, and the set of those that were seen."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.clean.duplicates import SeenKeys, exact_key, near_key


def test_near_duplicates_differ_in_case_punctuation_and_numbers():
    assert near_key("Page 12 of 40", "第12页") == near_key("page 7 of 9!", "第 7 页。")
    assert near_key("Page one", "第一页") != near_key("Page two", "第一页")
    assert exact_key("Page 12", "第12页") != exact_key("Page 13", "第12页")


def test_sides_are_not_interchangeable():
    assert exact_key("a", "b") != exact_key("b", "a")
    assert exact_key("ab", "c") != exact_key("a", "bc")
    assert near_key("ab", "c") != near_key("a", "bc")


@given(st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=12))
def test_seen_keys_are_a_set(chunks):
    seen, known = SeenKeys(), set()
    for chunk in chunks:
        found = seen.add(np.array(chunk, np.uint64))
        for key, repeated in zip(chunk, found.tolist(), strict=True):
            assert repeated == (key in known)
            known.add(key)
    assert len(seen) == len(known)
    lengths = [len(array) for array in seen.arrays]
    assert all(a >= 2 * b for a, b in pairwise(lengths))


def test_a_million_keys_take_eight_bytes_each_and_few_arrays():
    seen = SeenKeys()
    for start in range(0, 1 << 17, 1 << 10):
        seen.add(np.arange(start, start + (1 << 10), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    assert sum(array.nbytes for array in seen.arrays) == 8 << 17
    assert len(seen.arrays) <= 8
