"""Tables of several systems: what is best, what is compared, and how numbers are written."""

import pytest
from rich.text import Text

from benchmarks.report.tables import HIGHER, LOWER, Cell, Row, compare, format_number, make_table, markdown


def test_the_best_is_bold_in_its_group_and_nobody_is_best_alone():
    rows = [
        Row("a|b", [Cell("3", 3.0), Cell("x")], "one"),
        Row("c", [Cell("2", 2.0), Cell("7", 7.0)], "one"),
        Row("d", [Cell("1", 1.0), Cell("8", 8.0)], "two"),
    ]
    table = make_table("t", ("name", "p", "q"), rows, [LOWER, HIGHER])
    assert [str(cell.style) for cell in table.columns[1].cells if isinstance(cell, Text)] == ["", "bold", ""]
    assert "**" not in "".join(markdown(table).splitlines()[4])
    assert "| a\\|b | 3 | x |" in markdown(table)


def test_comparisons_know_which_end_is_better():
    rows = [Row("regard", [Cell("4", 4.0)]), Row("regard, slow", [Cell("9", 9.0)]), Row("peer", [Cell("6", 6.0)])]
    assert [comparison.ratio for comparison in compare("x", rows, 0, LOWER)] == [1.5]
    assert [comparison.ratio for comparison in compare("x", rows, 0, HIGHER)] == [1.5]
    assert compare("x", rows[:2], 0, LOWER) == []


@pytest.mark.parametrize(
    ("value", "text"), [(1252.6, "1,253"), (0.04321, "0.0432"), (99.94, "99.9"), (5.0, "5"), (1e6, "1,000,000")]
)
def test_numbers_have_three_figures(value, text):
    assert format_number(value) == text
