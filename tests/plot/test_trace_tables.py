"""What the tables of a trace say in a terminal of 80 columns."""

import io
import re

import numpy as np
import pytest
from rich.console import Console

from regard.plot.head_table import HeadRow, head_table
from regard.plot.looked_at_table import looked_at_table

from .figures import SRC, TGT, weights

ROWS = [
    HeadRow("encoder", 0, 0, 1.5, -0.5, 0.25, 0.5, 0.125, 0.0, 0.25, -1.5),
    HeadRow("cross", 1, 1, 0.5, 2.0, 0.5, 0.25, 0.0, 1.0, 0.75, 12.5),
    HeadRow("decoder", 0, 1, 2.5, 0.0, 0.0, 0.0, 0.0, 0.5),
    HeadRow("decoder", 0, 0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.5, -0.0001),
]


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
    for word, row, cells in zip(TGT, table, body(looked_at_table(table, SRC, TGT, most=2)), strict=True):
        best = np.argsort(-row)[:2]
        expected = [part for at in best for part in (SRC[at].replace("▁", "·"), f"{row[at]:.0%}")]
        assert cells == [word.replace("▁", "·"), *expected]


def test_words_are_not_read_as_markup_and_nothing_is_said_of_nothing():
    (first, second) = body(looked_at_table(np.array([[1.0, 0.0], [0.0, 0.0]]), ["[red]", "b"], ["[/]", "y"]))
    assert first == ["[/]", "[red]", "100%"]
    assert second == ["y"]


def test_an_empty_translation_has_an_empty_table():
    assert looked_at_table(np.zeros((0, 4)), SRC, []).row_count == 0


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("loss", ["cross", "encoder", "decoder", "decoder"]),
        ("entropy", ["decoder", "encoder", "decoder", "cross"]),
        ("kind", ["cross", "decoder", "decoder", "encoder"]),
        ("bleu", ["cross", "encoder", "decoder", "decoder"]),
    ],
)
def test_heads_are_sorted_by_any_column_what_was_not_measured_last(by, expected):
    found = body(head_table(ROWS, by))
    assert [cells[0] for cells in found] == expected
    if by == "loss":
        assert [cells[2] for cells in found] == ["1", "0", "0", "1"]
    if by == "kind":
        assert [cells[2] for cells in found] == ["1", "0", "1", "0"]


def test_a_row_says_all_that_is_known_within_80_columns():
    found = body(head_table([*ROWS, HeadRow("alignment", 11, 15, 5.3, -120.5, 1.0, 1.0, 1.0, 1.0, -1.25, -30.0)]))
    assert found[0] == ["cross", "1", "1", "0.50", "+2.0", "50%", "25%", "0%", "100%", "+0.750", "+12.50"]
    assert found[2] == ["decoder", "0", "0", "1.00", "+0.0", "0%", "0%", "0%", "50%", "+0.000", "–"]
    assert found[3] == ["alignment", "11", "15", "5.30", "−120.5", "100%", "100%", "100%", "100%", "−1.250", "−30.00"]
    assert found[4][-2:] == ["–", "–"]


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ValueError, match=re.escape("got 'entropie'; did you mean 'entropy'?")):
        head_table(ROWS, "entropie")
    with pytest.raises(ValueError, match=re.escape("got (5, 4) and 4 target, 5 source words")):
        looked_at_table(weights(5, 4), TGT, SRC)
    with pytest.raises(ValueError, match=re.escape("most must be 1 or more, got 0")):
        looked_at_table(weights(5, 4), SRC, TGT, most=0)
