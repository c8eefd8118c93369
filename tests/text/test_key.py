"""Keys: what is kept is what the categories of Unicode say, and case, punctuation and spaces tell nothing apart."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.key import key_of
from tests.text.corpora import any_text

TEXTS = any_text("aÀß_-.,!？。 \u3000介Ⅳ½①ﬁＡ\u0301\u093fनŉΐ\u200d😀")


@given(text=TEXTS)
def test_a_key_is_letters_numbers_and_marks(text):
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    kept = "".join(sign for sign in folded if unicodedata.category(sign)[0] in "LNM")
    assert key_of(text) == (kept or text)


@given(text=st.text("abcÀßé介绍हिन्दी ,.!？，。'“”-_"))
def test_case_spaces_and_punctuation_tell_nothing_apart(text):
    if any(sign.isalpha() for sign in text):
        assert key_of(text.upper()) == key_of(text.lower()) == key_of(f" “{text.replace(',', ' ; ')}” !")


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("Tom's here.", "TOMS HERE", True),
        ("他来了。", "他 来了！", True),
        ("ＡＢＣ", "abc", True),
        ("!!!", "???", False),
        ("!!!", "!!!", True),
        ("कि", "की", False),
        ("3.5", "35", True),
        ("a", "b", False),
    ],
)
def test_keys(one, other, alike):
    assert (key_of(one) == key_of(other)) == alike
