"""Verdicts: against sets of strings, pair by pair."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.key import key_of
from regard.text.ledger import Ledger, Verdict, hash_keys, take_stock
from regard.text.pair import Pair
from regard.text.split import split_valid

WORD = st.sampled_from(["", "a", "A.", "b", "a b", "ab", "介", "！", "!!", "x" * 9])
PAIRS = st.lists(st.tuples(WORD, WORD), max_size=12)


def make(pairs):
    return [Pair(src, tgt, f"line {i}") for i, (src, tgt) in enumerate(pairs)]


@given(pairs=PAIRS)
def test_stock_is_what_a_set_of_strings_says(pairs):
    expected, seen = [], set()
    for src, tgt in pairs:
        if not src or not tgt:
            expected.append(Verdict.EMPTY)
        elif max(len(src), len(tgt)) > 5:
            expected.append(Verdict.OVERLONG)
        else:
            expected.append(Verdict.DUPLICATE if (src, tgt) in seen else Verdict.TRAIN)
            seen.add((src, tgt))
    assert take_stock(make(pairs), max_chars=5).verdicts.tolist() == expected


def test_a_pair_is_not_its_reverse():
    ledger = take_stock(make([("a", "b"), ("b", "a"), ("ab", "a"), ("a", "ba")]), 5)
    assert ledger.count(Verdict.TRAIN) == 4
    assert len(set(ledger.pairs.tolist())) == 4


@given(pairs=PAIRS, held=PAIRS)
def test_sharing_is_what_sets_of_strings_say(pairs, held):
    ledger = take_stock(make(pairs), 99)
    found = ledger.sharing(hash_keys(src for src, _ in held), hash_keys(tgt for _, tgt in held))
    sources, targets = {key_of(src) for src, _ in held}, {key_of(tgt) for _, tgt in held}
    assert found.tolist() == [key_of(src) in sources or key_of(tgt) in targets for src, tgt in pairs]


def test_only_training_pairs_are_struck():
    ledger = take_stock(make([("a", "b"), ("a", ""), ("a", "b"), ("c", "d")]), 9)
    struck = ledger.struck(np.array([True, True, True, False]), Verdict.IN_TEST)
    assert struck.verdicts.tolist() == [Verdict.IN_TEST, Verdict.EMPTY, Verdict.DUPLICATE, Verdict.TRAIN]
    assert ledger.count(Verdict.TRAIN) == 2, "the old ledger stays as it was"


def test_selected_pairs_come_in_order():
    pairs = make([("a", "b"), ("a", ""), ("c", "d"), ("a", "b")])
    ledger = take_stock(pairs, 9)
    assert list(ledger.select(pairs, Verdict.TRAIN)) == [pairs[0], pairs[2]]
    assert list(ledger.select(pairs, Verdict.EMPTY, Verdict.DUPLICATE)) == [pairs[1], pairs[3]]
    assert ledger.places(Verdict.EMPTY, Verdict.DUPLICATE).tolist() == [1, 3]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_text_that_changes_between_two_readings_is_noticed(n):
    ledger = take_stock(make([("a", "b"), ("c", "d")]), 9)
    with pytest.raises(ValueError, match=f"must not change while it is read, got 2 pairs and then {n}"):
        list(ledger.select(make([("a", "b")] * n), Verdict.TRAIN))


MANY = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=10, max_size=60, unique=True)


def split(pairs, wanted):
    """Gives the training and validation pairs of a split, or None where there is none."""
    named = [(f"s{src}", f"t{tgt}") for src, tgt in pairs]
    try:
        ledger = split_valid(take_stock(make(named), 9), wanted, [0])
    except ValueError:
        return None
    parts = [[named[i] for i in ledger.places(verdict)] for verdict in (Verdict.TRAIN, Verdict.VALID)]
    assert len(parts[0]) + len(parts[1]) + ledger.count(Verdict.IN_VALID) == len(pairs)
    return parts


@given(pairs=MANY, wanted=st.integers(1, 9))
def test_validation_shares_no_sentence_with_training(pairs, wanted):
    parts = split(pairs, wanted)
    if parts is None:
        return
    train, valid = parts
    assert train
    assert len(valid) == min(wanted, len(pairs) // 10)
    for side in (0, 1):
        assert not {pair[side] for pair in train} & {pair[side] for pair in valid}


@given(pairs=MANY, data=st.data())
def test_the_split_does_not_depend_on_the_order(pairs, data):
    shuffled = data.draw(st.permutations(pairs))
    parts, others = split(pairs, 3), split(shuffled, 3)
    assert (parts is None) == (others is None)
    if parts is not None and others is not None:
        assert [sorted(part) for part in parts] == [sorted(part) for part in others]


def test_sentences_that_occur_once_go_first():
    often = [(src, 0) for src in range(30)]
    once = [(100 + i, 200 + i) for i in range(5)]
    parts = split(often + once, 3)
    assert parts is not None
    assert len(parts[0]) == 32, "no pair was lost to a shared sentence"
    assert {tgt for _, tgt in parts[1]} <= {f"t{200 + i}" for i in range(5)}


def ledger_of(pairs) -> Ledger:
    return take_stock(make(pairs), 99)


@pytest.mark.parametrize("n", [0, 1, 9])
def test_too_small_a_text_is_not_split(n):
    pairs = [(f"a{i}", f"b{i}") for i in range(n)] + [("", "")]
    said = f"must have 10 pairs or more to split validation off, got {n} that can be used of {n + 1}; .+data.valid"
    with pytest.raises(ValueError, match=said):
        split_valid(ledger_of(pairs), 5, [0])


def test_a_text_of_one_translation_is_not_split():
    with pytest.raises(ValueError, match="share no sentence with it, got 0 of 20"):
        split_valid(ledger_of([(f"a{i}", "b") for i in range(20)]), 5, [0])


def test_validation_is_split_off_the_sources_that_are_named():
    pairs = [Pair(f"a{i}", f"b{i}", "", origin=i % 3) for i in range(90)]
    ledger = split_valid(take_stock(pairs, 9), 50, [1])
    chosen = ledger.places(Verdict.VALID)
    assert len(chosen) == 3, "a tenth of them"
    assert set(ledger.origins[chosen]) == {1}
    with pytest.raises(ValueError, match="got 0 that can be used of 90"):
        split_valid(take_stock(pairs, 9), 50, [3])


def test_the_first_of_several_sources_keeps_a_pair():
    ledger = take_stock([Pair("a", "b", "", origin) for origin in (300, 0, 1)], 9)
    assert ledger.origins.tolist() == [300, 0, 1]
    assert ledger.verdicts.tolist() == [Verdict.TRAIN, Verdict.DUPLICATE, Verdict.DUPLICATE]
