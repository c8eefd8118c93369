"""Cutting overlong text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.decode.sentences import SENTENCE_END, cut, sentences

CASES = [
    ("One. Two! Three? Four; five", ["One. ", "Two! ", "Three? ", "Four; ", "five"]),
    ("他来了。她走了！真的吗？是；不是", ["他来了。", "她走了！", "真的吗？", "是；", "不是"]),
    ("It is 3.14 at a.m.now. Yes", ["It is 3.14 at a.m.now. ", "Yes"]),
    ("“去吧！”他说。好", ["“去吧！”", "他说。", "好"]),
    ('He said "go!" Then left...  So', ['He said "go!" ', "Then left...  ", "So"]),
    ("first line\n\n second line", ["first line\n\n ", "second line"]),
    ("no end", ["no end"]),
    ("", []),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text[:12] for text, _ in CASES])
def test_texts_are_cut_where_sentences_end(text, expected):
    assert cut(text, SENTENCE_END) == expected


def test_a_sentence_that_is_too_long_is_cut_at_commas_into_few_parts():
    text = "short. one, two, three, four, five. 一，二，三"
    assert sentences(text, len, 12) == ["short. ", "one, two, ", "three, ", "four, five. ", "一，二，三"]


@given(st.text(alphabet='ab ,.!。，\n"3', max_size=60), st.integers(1, 20))
def test_joined_again_the_parts_are_the_text_and_none_is_too_long(text, max_len):
    try:
        parts = sentences(text, len, max_len)
    except ValueError:
        assert len(text) > max_len
        return
    assert "".join(parts) == text
    assert all(0 < len(part) <= max_len for part in parts)


def test_a_stretch_without_a_place_to_cut_is_refused():
    with pytest.raises(ValueError, match=r"25 pieces .* more than the 10 that the model reads: .* 'bbbbbbbbbb"):
        sentences("short. " + "b" * 25, len, 10)
