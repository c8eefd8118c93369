"""Reports and limits: what is said, what fits, and that reports survive a file."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import TextSettings
from regard.text.fitting import measure
from regard.text.ledger import Verdict, take_stock
from regard.text.pair import Pair
from regard.text.report import DataReport, Origin, find, find_origins, read_report, write_report

PAIRS = [Pair("a", "b", "x, line 1"), Pair("a", "b", "x, line 2"), Pair("", "b", "x, line 3")]
LEFT_OUT = find(take_stock(PAIRS, 9), {Verdict.DUPLICATE: ["x, line 2"], Verdict.EMPTY: ["x, line 3"]})
REPORT = DataReport(1234, 1200, 30, 0, True, LEFT_OUT, 0)


def test_a_report_says_what_occurred():
    assert REPORT.lines() == [
        "1,234 pairs read: 1,200 for training, 30 for validation (split off), 0 for test",
        "1 left out with an empty side (x, line 3)",
        "1 left out that occurred before (x, line 2)",
    ]
    given_valid = replace(REPORT, valid_is_split=False, held_empty=2, left_out=find(take_stock([], 9), {}))
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
    ledger = take_stock([Pair(f"a{i}", "b", "", origin=i // 3) for i in range(7)] + [Pair("", "b", "", 0)], 9)
    found = find_origins(ledger, ["x", "y", "z", "none"], [1.0, 2.0, 3.0, 4.0])
    assert found == (Origin("x", 3, 1.0), Origin("y", 3, 2.0), Origin("z", 1, 3.0), Origin("none", 0, 4.0))
    assert find_origins(take_stock(PAIRS, 9), ["x"], [5.0]) == ()


def test_a_source_of_which_nothing_is_left_is_called_out():
    pairs = [Pair("a", "b", "x, line 1", origin=0), Pair("a", "b", "y, line 1", origin=1)]
    origins = find_origins(take_stock(pairs, 9), ["x", "y"], [1.0, 3.0])
    assert replace(REPORT, origins=origins).lines()[1:3] == [
        "1 for training from x",
        "NOTHING for training from y: all of it was left out, for reasons that are told below",
    ]


@pytest.mark.parametrize("report", [REPORT, SEVERAL])
def test_a_report_survives_a_file(tmp_path, report):
    write_report(report, tmp_path / "report.json")
    assert read_report(tmp_path / "report.json") == report


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"left_out": [3]}', '{"left_out": [], "read": 3}'])
def test_a_damaged_report_is_named(tmp_path, text):
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(ValueError, match=r"report\.json: a report must be whole, got .*Error"):
        read_report(tmp_path / "report.json")


@given(n_src=st.integers(0, 60), n_tgt=st.integers(0, 60))
def test_limits_do_not_ask_which_side_is_longer(n_src, n_tgt):
    settings = TextSettings(max_len=50, max_ratio=3.0)
    assert measure(n_src, n_tgt, settings) is measure(n_tgt, n_src, settings)


@pytest.mark.parametrize(
    ("n_src", "n_tgt", "verdict"),
    [
        (50, 50, Verdict.TRAIN),
        (51, 50, Verdict.OVERLONG),
        (16, 48, Verdict.TRAIN),
        (16, 49, Verdict.OUTLIER),
        (1, 12, Verdict.TRAIN),  # too short for a ratio to mean anything
        (1, 13, Verdict.OUTLIER),
    ],
)
def test_limits(n_src, n_tgt, verdict):
    assert measure(n_src, n_tgt, TextSettings(max_len=50, max_ratio=3.0)) is verdict
