"""Words of a sentence: by spaces, Chinese by characters or pieces, or as somebody has split them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.pair import normalise
from regard.text.units import join_words, split_pieces, split_words

TEXT = st.text(
    st.sampled_from("ab 我们好。，“”xé'\u0301 ก็า\n9") | st.characters(exclude_categories=["Cs"]), max_size=20
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("我喜欢绿茶。", "我 喜 欢 绿 茶 。"),
        ("Xi'an isn't far,  is it?", "Xi'an isn't far, is it?"),
        ("我用PyTorch 2写代码", "我 用 PyTorch 2 写 代 码"),
        ("他说：“3.14”。", "他 说 ： “3.14” 。"),
        ("ก็ดี", "ก็ ดี"),
        ("", ""),
    ],
)
def test_words_by_hand(text, words):
    assert split_words(text).words == words.split()


def test_in_chinese_pieces_may_be_words():
    text = "我喜欢PyTorch 。好"
    pieces = [(0, 1), (0, 1), (1, 3), (3, 5), (5, 10), (11, 13)]
    assert split_pieces(text, pieces).words == ["我", "喜欢", "PyTorch", "。好"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("今 天 下 雨 了 。", "今天下雨了。"),
        ("It is n't far , is it ?", "It isn't far, is it?"),
        ('He said , " do go ( now ) ! "', 'He said, "do go (now)!"'),
        ("我 用 PyTorch 2 写 代码", "我用PyTorch 2写代码"),
        ("friend 's  5 %", "friend's 5%"),
        ("e \u0301", "e \u0301"),
        ("", ""),
    ],
)
def test_split_words_are_joined_as_they_are_written(line, text):
    found = join_words(line)
    assert found.text == text
    assert found.words == line.split()


@given(TEXT)
def test_words_cover_all_but_white_space_once_and_in_order(text):
    for found in (split_words(text), split_pieces(text, []), join_words(text)):
        assert found.text == normalise(found.text)
        covered = [place for start, stop in found.spans for place in range(start, stop)]
        assert covered == [place for place, sign in enumerate(found.text) if not sign.isspace()]
        assert all(found.words)
    assert split_words(text).text == normalise(text)
    assert join_words(text).words == normalise(text).split()
