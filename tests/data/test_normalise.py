"""Keys: what is kept is what the categories of Unicode say, and case, punctuation and spaces tell nothing apart.

Normal text: laws of normalisation over any text.
Words of a sentence: by spaces, Chinese by characters or pieces, or as somebody has split them.
"""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.normalise import (
    Pair,
    dedup_key,
    make_pair,
    normalise,
    simplified_sides,
    simplify,
)
from regard.data.words import join_words, split_pieces, split_words
from tests.data.corpora import any_text

TEXTS = any_text("aÀß_-.,!？。 \u3000介Ⅳ½①ﬁＡ\u0301\u093fनŉΐ\u200d😀")


@given(text=TEXTS)
def test_a_key_is_letters_numbers_and_marks(text):
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    saved = "".join(sign for sign in folded if unicodedata.category(sign)[0] in "LNM")
    assert dedup_key(text) == (saved or text)


@given(text=st.text("abcÀßé介绍हिन्दी ,.!？，。'“”-_"))
def test_case_spaces_and_punctuation_tell_nothing_apart(text):
    if any(sign.isalpha() for sign in text):
        assert dedup_key(text.upper()) == dedup_key(text.lower()) == dedup_key(f" “{text.replace(',', ' ; ')}” !")


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
    assert (dedup_key(one) == dedup_key(other)) == alike


ANY = any_text("a\u0301e é\t\n\x00\x07\x85\u3000\u2028\u200b\ufeff\ud800▁_，。！ﬁＡ")


@given(ANY)
def test_normal_text_stays_as_it_is(text):
    assert normalise(normalise(text)) == normalise(text)


@given(ANY)
def test_normal_text_is_composed_and_single_spaced_and_can_be_written(text):
    result = normalise(text)
    assert unicodedata.is_normalized("NFC", result)
    assert result == " ".join(result.split())
    assert not [sign for sign in result if unicodedata.category(sign) in {"Cc", "Cs"}]
    assert result.encode().decode() == result


@pytest.mark.parametrize(
    ("text", "result"),
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
def test_cases(text, result):
    assert normalise(text) == result


def test_a_pair_is_made_normal():
    assert make_pair(" a ", "b\x00", "x.tsv, line 1") == Pair("a", "b", "x.tsv, line 1")


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
    result = join_words(line)
    assert result.text == text
    assert result.words == line.split()


@given(TEXT)
def test_words_cover_all_but_white_space_once_and_in_order(text):
    for result in (split_words(text), split_pieces(text, []), join_words(text)):
        assert result.text == normalise(result.text)
        covered = [place for start, stop in result.spans for place in range(start, stop)]
        assert covered == [place for place, sign in enumerate(result.text) if not sign.isspace()]
        assert all(result.words)
    assert split_words(text).text == normalise(text)
    assert join_words(text).words == normalise(text).split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("介紹一下西安", "介绍一下西安"),
        ("乾隆皇帝乾杯，頭髮發白", "乾隆皇帝干杯，头发发白"),
        ("著名的瞭解", "著名的了解"),
        ("已经是简体了。", "已经是简体了。"),
        ("plain ASCII, é and かな", "plain ASCII, é and かな"),
    ],
)
def test_traditional_characters_are_folded_in_their_places(text, expected):
    assert simplify(text) == expected
    assert simplify(expected) == expected


@pytest.mark.parametrize(
    ("languages", "sides"),
    [(("zh", "en"), {"src"}), (("en", "zho_Hans"), {"tgt"}), (("zh-Hant", "en"), set()), (("ja", "de"), set())],
)
def test_chinese_is_folded_unless_it_is_named_traditional(languages, sides):
    assert simplified_sides(*languages) == sides
