"""The everyday lines: fifty a direction, each with answers, and what counts as the same answer."""

import sys

import pytest

from benchmarks.suites import SCRIPTS


@pytest.fixture
def everyday(monkeypatch):
    """Import the script the way it runs, with its folder on the path for its siblings, and forget it afterwards."""
    monkeypatch.syspath_prepend(SCRIPTS)
    before = set(sys.modules)
    import everyday

    yield everyday
    for name in {"everyday", "measure"} & (set(sys.modules) - before):
        del sys.modules[name]


@pytest.mark.parametrize("direction", ["zh-en", "en-zh"])
def test_fifty_lines_a_direction_with_answers(everyday, direction):
    lines = everyday.read_lines(everyday.LINES, direction)
    assert len(lines) == len({line.src for line in lines}) == 50
    assert all(line.answers and "" not in line.answers for line in lines)


def test_a_source_gets_a_final_mark_and_loses_it(everyday):
    by_src = {line.src: line for line in everyday.read_lines(everyday.LINES, "zh-en")}
    word, question = by_src["医院"], by_src["为什么？"]
    assert (word.with_mark("zh"), word.without_mark()) == ("医院。", "医院")
    assert (question.with_mark("zh"), question.without_mark()) == ("为什么？", "为什么")


def test_case_commas_final_marks_and_chinese_spaces_do_not_count(everyday):
    assert everyday.reduce("It\N{RIGHT SINGLE QUOTATION MARK}s OK, thanks!", "en") == "it's ok thanks"
    assert everyday.reduce("2024 年 5 月 1 日。", "zh") == "2024年5月1日"
    assert everyday.reduce("apples", "en") != everyday.reduce("apple", "en")
