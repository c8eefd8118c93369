"""Rules that see one pair: what each drops, and what only looks like it."""

import pytest

from regard.clean.lengths import fit_lengths
from regard.clean.rules import REASONS, broken_rule, is_copy, links, numbers

ANY = fit_lengths([])


def reason(src, tgt, raw=None, max_chars=200, skip=()):
    return broken_rule(src, tgt, f"{src}\t{tgt}" if raw is None else raw, max_chars, ANY, frozenset(skip))


BROKEN = [
    ("empty", "", "text"),
    ("empty", "text", ""),
    ("long", "word " * 41, "word " * 41),
    ("garbage", "ein schÃ¶ner Tag", "a fine day"),
    ("garbage", "a \ufffd b \ufffd", "a and b"),
    ("garbage", "== -- ## ** ++ // ::", "equals and others"),
    ("garbage", "<b><i>Text</i></b>", "Text"),
    ("copy", "This is not a translation", "this is not a translation!"),
    ("copy", "这不是翻译", "这不是翻译"),
    ("numbers", "Wait 60 seconds", "40 Sekunden warten"),
    ("links", "See https://example.org/a now", "Siehe dort"),
    ("length", "Yes", "This sentence says so very much more than the other side. " * 3),
]
GOOD = [
    ("GNOME", "GNOME"),
    ("Adobe Photoshop Elements Pro", "Adobe Photoshop Elements Pro"),
    ("https://example.org/a.", "https://example.org/a"),
    ("42", "42"),
    ("In 1,000 Jahren", "in 1000 years"),
    ("1.1亿个参数", "110 million parameters"),
    ("１２个", "12 of them"),
    ("um 16 Uhr", "at 4 pm"),
    ("zwei Äpfel", "2 apples"),
    ("当 k <= n 时为零，当 k > n 时为一", "zero when k <= n and one when k > n"),
    ("👍🎉", "👍🎉"),
    ("שלום עולם", "hello world"),
]


@pytest.mark.parametrize(("name", "src", "tgt"), BROKEN)
def test_each_rule_drops_what_it_is_for_and_can_be_left_out(name, src, tgt):
    assert reason(src, tgt) == name
    if name != "empty":
        assert reason(src, tgt, skip=[name]) != name
    assert name in REASONS


@pytest.mark.parametrize(("src", "tgt"), GOOD)
def test_what_only_looks_wrong_is_kept(src, tgt):
    assert reason(src, tgt) is None


def test_control_characters_count_as_they_were_written():
    assert reason("ab", "cd", "a\x00b\x01\tc\x02d") == "garbage"
    assert reason("a b", "c d", "a b\tc d") is None


def test_numbers_and_links_are_read_alike_however_they_are_written():
    assert numbers("07:30") == {"7", "3"} == numbers("at 7 and 30")
    assert numbers("1,000") == {"1", "0"} and numbers("1000") == {"1"}
    assert links("see www.example.org/. And a@b.org") == {"www.example.org", "a@b.org"}


def test_capitals_and_few_words_are_no_copies():
    assert not is_copy("New York", "New York")
    assert not is_copy("Copyright Free Software Foundation Inc", "Copyright Free Software Foundation Inc")
    assert is_copy("copyright by the foundation", "Copyright by the Foundation")
    assert not is_copy("one two three four", "one two three five")
