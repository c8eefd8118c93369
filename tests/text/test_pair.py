"""Normal text: laws of normalisation over any text."""

import unicodedata

import pytest
from hypothesis import given

from regard.text.pair import Pair, make_pair, normalise
from tests.text.corpora import any_text

ANY = any_text("a\u0301e é\t\n\x00\x07\x85\u3000\u2028\u200b\ufeff\ud800▁_，。！ﬁＡ")


@given(ANY)
def test_normal_text_stays_as_it_is(text):
    assert normalise(normalise(text)) == normalise(text)


@given(ANY)
def test_normal_text_is_composed_and_single_spaced_and_can_be_written(text):
    found = normalise(text)
    assert unicodedata.is_normalized("NFC", found)
    assert found == " ".join(found.split())
    assert not [sign for sign in found if unicodedata.category(sign) in {"Cc", "Cs"}]
    assert found.encode().decode() == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("  two \t\u3000 words\r\n", "two words"),
        ("e\u0301", "é"),
        ("a \x00 b", "a b"),
        ("bell\x07", "bell"),
        ("你好，世界！（Ａ）", "你好，世界！（Ａ）"),  # nothing is made narrow
        ("ﬁne ½", "ﬁne ½"),  # nor compatible
        ("line\u2028feed", "line feed"),
        ("a\u200db", "a\u200db"),  # joiners carry meaning
        ("▁", "_"),
    ],
)
def test_cases(text, found):
    assert normalise(text) == found


def test_a_pair_is_made_normal():
    assert make_pair(" a ", "b\x00", "x.tsv, line 1") == Pair("a", "b", "x.tsv, line 1")
