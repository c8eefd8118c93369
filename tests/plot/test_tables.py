"""What the tables of a trace say in a terminal of 80 columns."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from regard.plot.tables import head_table, word_attention_table
from regard.trace.head_ablation import Quality
from regard.trace.head_report import HeadReport, HeadStats, HeadSummary
from tests.plot.figures import SRC, TGT, weights


def head(place, loss, bleu=None, end=0.5, **habits):
    kind, layer, number = place.split(":")
    means = dict.fromkeys(("entropy", "spread", "offset", "diagonal", "previous", "next", "first", "punctuation"), 0.0)
    return HeadSummary(kind, int(layer), int(number), HeadStats(**(means | habits), end=end), loss, bleu)


HEADS = [
    head("encoder:0:0", 0.25, -1.5, entropy=1.5, offset=-0.5, diagonal=0.25, previous=0.5, first=0.125, next=0.75),
    head("cross:1:1", 0.75, 12.5, entropy=0.5, offset=2.0, diagonal=0.5, previous=0.25, punctuation=1.0),
    head("decoder:0:1", -0.25, None, None, entropy=2.5),
    head("decoder:0:0", -0.00001, None, None, entropy=1.0),
]
REPORT = HeadReport(HEADS, Quality(1.25, 30.5), 1200, 9999, 0)


def printed(table):
    text = io.StringIO()
    Console(file=text, width=80).print(table)
    return text.getvalue().splitlines()


def body(table):
    """Gives the cells below the line under the headings, row by row, without the caption."""
    lines = printed(table)
    begin = next(at for at, line in enumerate(lines) if "──" in line) + 1
    return [line.split() for line in lines[begin : begin + table.row_count]]


def test_each_word_is_followed_by_what_it_looked_at_most_first():
    table = weights(5, 4)
    for word, row, cells in zip(TGT, table, body(word_attention_table(table, SRC, TGT, most=2)), strict=True):
        best = np.argsort(-row)[:2]
        expected = [part for at in best for part in (SRC[at].replace("▁", "·"), f"{row[at]:.0%}")]
        assert cells == [word.replace("▁", "·"), *expected]


def test_words_are_not_read_as_markup_and_nothing_is_said_of_nothing():
    (first, second) = body(word_attention_table(np.array([[1.0, 0.0], [0.0, 0.0]]), ["[red]", "b"], ["[/]", "y"]))
    assert first == ["[/]", "[red]", "100%"]
    assert second == ["y"]


def test_an_empty_translation_has_an_empty_table():
    assert word_attention_table(np.zeros((0, 4)), SRC, []).row_count == 0


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("loss", ["cross:1:1", "encoder:0:0", "decoder:0:0", "decoder:0:1"]),
        ("entropy", ["decoder:0:1", "encoder:0:0", "decoder:0:0", "cross:1:1"]),
        ("kind", ["cross:1:1", "decoder:0:1", "decoder:0:0", "encoder:0:0"]),
        ("bleu", ["cross:1:1", "encoder:0:0", "decoder:0:1", "decoder:0:0"]),
    ],
)
def test_heads_are_sorted_by_any_column_what_was_not_measured_last(by, expected):
    assert [cells[0] for cells in body(head_table(REPORT, by))] == expected


def test_a_row_says_all_that_is_known_within_80_columns():
    full = dict.fromkeys(("diagonal", "previous", "next", "first", "punctuation"), 1.0)
    long = head("encoder:11:15", -1.25, -30.0, 1.0, entropy=5.3, offset=-120.5, **full)
    table = head_table(replace(REPORT, heads=[*HEADS, long]))
    found = {cells[0]: cells[1:] for cells in body(table)}
    assert found["cross:1:1"] == ["0.50", "+2.0", "50%", "25%", "0%", "0%", "50%", "100%", "+0.7500", "+12.50"]
    assert found["decoder:0:0"] == ["1.00", "+0.0", "0%", "0%", "0%", "0%", "–", "0%", "+0.0000", "–"]
    assert found["encoder:11:15"] == ["5.30", "−120.5", *["100%"] * 6, "−1.2500", "−30.00"]
    assert table.title == "Heads by loss, 1,200 pairs: loss 1.250, BLEU 30.50 with all of them"
    assert "BLEU 3" not in head_table(replace(REPORT, whole=Quality(1.25, None))).title


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ValueError, match=re.escape("unknown order of heads 'entropie': did you mean 'entropy'?")):
        head_table(REPORT, "entropie")
    with pytest.raises(ValueError, match=re.escape("got (5, 4) and 4 target, 5 source words")):
        word_attention_table(weights(5, 4), TGT, SRC)
    with pytest.raises(ValueError, match=re.escape("most must be 1 or more, got 0")):
        word_attention_table(weights(5, 4), SRC, TGT, most=0)
