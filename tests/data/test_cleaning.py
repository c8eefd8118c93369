"""Verdicts: against sets of strings, pair by pair.

Reports and limits: what is said, what fits, and that reports survive a file.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import TextSettings
from regard.data.cleaning import (
    DataReport,
    Origin,
    PairIndex,
    Status,
    check_lengths,
    count_left_out,
    count_origins,
    hash_keys,
    read_report,
    scan,
    split_valid,
    write_report,
)
from regard.data.normalise import Pair, dedup_key

WORD = st.sampled_from(["", "a", "A.", "b", "a b", "ab", "介", "！", "!!", "x" * 9])
PAIRS = st.lists(st.tuples(WORD, WORD), max_size=12)


def make(pairs):
    return [Pair(src, tgt, f"line {i}") for i, (src, tgt) in enumerate(pairs)]


@given(pairs=PAIRS)
def test_stock_is_what_a_set_of_strings_says(pairs):
    expected, seen = [], set()
    for src, tgt in pairs:
        if not src or not tgt:
            expected.append(Status.EMPTY)
        elif max(len(src), len(tgt)) > 5:
            expected.append(Status.OVERLONG)
        else:
            expected.append(Status.DUPLICATE if (src, tgt) in seen else Status.TRAIN)
            seen.add((src, tgt))
    assert scan(make(pairs), max_chars=5).statuses.tolist() == expected


def test_a_pair_is_not_its_reverse():
    ledger = scan(make([("a", "b"), ("b", "a"), ("ab", "a"), ("a", "ba")]), 5)
    assert ledger.count(Status.TRAIN) == 4
    assert len(set(ledger.pairs.tolist())) == 4


@given(pairs=PAIRS, held=PAIRS)
def test_sharing_is_what_sets_of_strings_say(pairs, held):
    ledger = scan(make(pairs), 99)
    result = ledger.overlapping(hash_keys(src for src, _ in held), hash_keys(tgt for _, tgt in held))
    sources, targets = {dedup_key(src) for src, _ in held}, {dedup_key(tgt) for _, tgt in held}
    assert result.tolist() == [dedup_key(src) in sources or dedup_key(tgt) in targets for src, tgt in pairs]


def test_only_training_pairs_are_struck():
    ledger = scan(make([("a", "b"), ("a", ""), ("a", "b"), ("c", "d")]), 9)
    struck = ledger.mark(np.array([True, True, True, False]), Status.IN_TEST)
    assert struck.statuses.tolist() == [Status.IN_TEST, Status.EMPTY, Status.DUPLICATE, Status.TRAIN]
    assert ledger.count(Status.TRAIN) == 2, "the old ledger stays as it was"


def test_selected_pairs_come_in_order():
    pairs = make([("a", "b"), ("a", ""), ("c", "d"), ("a", "b")])
    ledger = scan(pairs, 9)
    assert list(ledger.select(pairs, Status.TRAIN)) == [pairs[0], pairs[2]]
    assert list(ledger.select(pairs, Status.EMPTY, Status.DUPLICATE)) == [pairs[1], pairs[3]]
    assert ledger.indices(Status.EMPTY, Status.DUPLICATE).tolist() == [1, 3]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_text_that_changes_between_two_readings_is_noticed(n):
    ledger = scan(make([("a", "b"), ("c", "d")]), 9)
    with pytest.raises(ValueError, match=f"must not change during preparation, got 2 pairs and then {n}"):
        list(ledger.select(make([("a", "b")] * n), Status.TRAIN))


MANY = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=10, max_size=60, unique=True)


def split(pairs, wanted):
    """Return the training and validation pairs of a split, or None where there is none."""
    named = [(f"s{src}", f"t{tgt}") for src, tgt in pairs]
    try:
        ledger = split_valid(scan(make(named), 9), wanted, [0])
    except ValueError:
        return None
    parts = [[named[i] for i in ledger.indices(verdict)] for verdict in (Status.TRAIN, Status.VALID)]
    assert len(parts[0]) + len(parts[1]) + ledger.count(Status.IN_VALID) == len(pairs)
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


def ledger_of(pairs) -> PairIndex:
    return scan(make(pairs), 99)


@pytest.mark.parametrize("n", [0, 1, 9])
def test_too_small_a_text_is_not_split(n):
    pairs = [(f"a{i}", f"b{i}") for i in range(n)] + [("", "")]
    message = f"must have 10 pairs or more to split off a validation set, got {n} usable of {n + 1}; .+data.valid"
    with pytest.raises(ValueError, match=message):
        split_valid(ledger_of(pairs), 5, [0])


def test_a_text_of_one_translation_is_not_split():
    with pytest.raises(ValueError, match="share no sentence with it, got 0 of 20"):
        split_valid(ledger_of([(f"a{i}", "b") for i in range(20)]), 5, [0])


def test_validation_is_split_off_the_sources_that_are_named():
    pairs = [Pair(f"a{i}", f"b{i}", "", origin=i % 3) for i in range(90)]
    ledger = split_valid(scan(pairs, 9), 50, [1])
    chosen = ledger.indices(Status.VALID)
    assert len(chosen) == 3, "a tenth of them"
    assert set(ledger.origins[chosen]) == {1}
    with pytest.raises(ValueError, match="got 0 usable of 90"):
        split_valid(scan(pairs, 9), 50, [3])


def test_the_first_of_several_sources_keeps_a_pair():
    ledger = scan([Pair("a", "b", "", origin) for origin in (300, 0, 1)], 9)
    assert ledger.origins.tolist() == [300, 0, 1]
    assert ledger.statuses.tolist() == [Status.TRAIN, Status.DUPLICATE, Status.DUPLICATE]


REPORT_PAIRS = [Pair("a", "b", "x, line 1"), Pair("a", "b", "x, line 2"), Pair("", "b", "x, line 3")]
LEFT_OUT = count_left_out(scan(REPORT_PAIRS, 9), {Status.DUPLICATE: ["x, line 2"], Status.EMPTY: ["x, line 3"]})
REPORT = DataReport(1234, 1200, 30, 0, True, LEFT_OUT, 0)


def test_a_report_says_what_occurred():
    assert REPORT.lines() == [
        "1,234 pairs read: 1,200 for training, 30 for validation (split off), 0 for test",
        "1 left out with an empty side (x, line 3)",
        "1 left out that occurred before (x, line 2)",
    ]
    given_valid = replace(REPORT, valid_is_split=False, held_empty=2, left_out=count_left_out(scan([], 9), {}))
    assert given_valid.lines() == [
        "1,234 pairs read: 1,200 for training, 30 for validation, 0 for test",
        "2 left out of validation and test with an empty side",
    ]


SEVERAL = replace(REPORT, origins=(Origin("a.tsv", 1000, 2.5), Origin("b.tsv", 200, 1.0)))


def test_several_sources_are_told_apart():
    assert SEVERAL.lines()[1:3] == [
        "1,000 for training from a.tsv, each seen 2.5 times an epoch",
        "200 for training from b.tsv",
    ]
    ledger = scan([Pair(f"a{i}", "b", "", origin=i // 3) for i in range(7)] + [Pair("", "b", "", 0)], 9)
    result = count_origins(ledger, ["x", "y", "z", "none"], [1.0, 2.0, 3.0, 4.0])
    assert result == (Origin("x", 3, 1.0), Origin("y", 3, 2.0), Origin("z", 1, 3.0), Origin("none", 0, 4.0))
    assert count_origins(scan(REPORT_PAIRS, 9), ["x"], [5.0]) == ()


def test_a_source_of_which_nothing_is_left_is_called_out():
    pairs = [Pair("a", "b", "x, line 1", origin=0), Pair("a", "b", "y, line 1", origin=1)]
    origins = count_origins(scan(pairs, 9), ["x", "y"], [1.0, 3.0])
    assert replace(REPORT, origins=origins).lines()[1:3] == [
        "1 for training from x",
        "NOTHING for training from y: all pairs were left out, for the reasons below",
    ]


@pytest.mark.parametrize("report", [REPORT, SEVERAL])
def test_a_report_survives_a_file(tmp_path, report):
    write_report(report, tmp_path / "report.json")
    assert read_report(tmp_path / "report.json") == report


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"left_out": [3]}', '{"left_out": [], "read": 3}'])
def test_a_damaged_report_is_named(tmp_path, text):
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(ValueError, match=r"report\.json: a report must be complete, got .*Error"):
        read_report(tmp_path / "report.json")


@given(n_src=st.integers(0, 60), n_tgt=st.integers(0, 60))
def test_limits_do_not_ask_which_side_is_longer(n_src, n_tgt):
    settings = TextSettings(max_len=50, max_ratio=3.0)
    assert check_lengths(n_src, n_tgt, settings) is check_lengths(n_tgt, n_src, settings)


@pytest.mark.parametrize(
    ("n_src", "n_tgt", "verdict"),
    [
        (50, 50, Status.TRAIN),
        (51, 50, Status.OVERLONG),
        (16, 48, Status.TRAIN),
        (16, 49, Status.OUTLIER),
        (1, 12, Status.TRAIN),  # too short for a ratio to mean anything
        (1, 13, Status.OUTLIER),
    ],
)
def test_limits(n_src, n_tgt, verdict):
    assert check_lengths(n_src, n_tgt, TextSettings(max_len=50, max_ratio=3.0)) is verdict
