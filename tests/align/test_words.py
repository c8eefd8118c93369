"""Words and pieces are joined where they overlap: each once, in order, and no more than needed."""

import io
from itertools import pairwise

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from regard.align.links import group_of_tokens, word_groups
from regard.data.tokenizer import Tokenizer
from regard.data.words import split_words
from tests.pipeline.test_translator import TOKENIZER


@pytest.mark.parametrize(
    ("words", "pieces", "joints", "owned"),
    [
        ([(0, 3), (4, 6)], [(0, 2), (2, 3), (4, 6)], [[0], [1]], [0, 0, 1]),  # "abc de" as ab c de
        ([(0, 1), (1, 2), (2, 3)], [(0, 3)], [[0, 1, 2]], [0]),  # 图书馆 in one piece
        ([(0, 1), (1, 2), (2, 3)], [(0, 1), (0, 1), (1, 3)], [[0], [1, 2]], [0, 0, 1]),  # ▁ 我 喜欢
        ([(0, 1)], [(0, 1), (0, 1), (0, 1)], [[0]], [0, 0, 0]),  # three bytes
        ([(0, 2), (2, 4), (4, 6)], [(0, 3), (3, 6)], [[0, 1, 2]], [0, 0]),  # pieces across words
        ([], [], [], []),
    ],
)
def test_by_hand(words, pieces, joints, owned):
    found = word_groups(words, pieces)
    assert [list(each) for each in found] == joints
    assert group_of_tokens(found, words, pieces) == owned


def some_spans(borders, stop):
    ends = [0, *sorted(borders), stop]
    return [(start, end) for start, end in pairwise(ends) if start < end]


@given(st.integers(1, 20).flatmap(lambda n: st.tuples(st.just(n), *[st.sets(st.integers(0, n))] * 3)))
def test_each_word_and_piece_is_joined_once_in_order_and_no_more_than_needed(drawn):
    n, *borders = drawn
    words, one, other = (some_spans(each, n) for each in borders)
    joints = word_groups(words, [*one, *other])
    assert [word for joint in joints for word in joint] == list(range(len(words)))
    ends = {words[joint[-1]][1] for joint in joints}
    assert ends == {stop for _, stop in words} & {stop for _, stop in one} & {stop for _, stop in other}
    for pieces in (one, other):
        owned = group_of_tokens(joints, words, pieces)
        assert owned == sorted(owned) and {*owned} == {*range(len(joints))}
        for owner, (start, stop) in zip(owned, pieces, strict=True):
            assert words[joints[owner][0]][0] <= start < stop <= words[joints[owner][-1]][1]


def subword_tokenizer():
    """Makes a tokenizer of pieces and bytes."""
    model, texts = io.BytesIO(), ["hello world 你好 世界", "low lower lowest", "你好吗？", "world peace 世界和平"] * 5
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    options = {"model_type": "unigram", "vocab_size": 300, "hard_vocab_limit": False, "byte_fallback": True}
    plain = {"normalization_rule_name": "identity", "minloglevel": 2}
    options |= {"sentence_iterator": iter(texts), "model_writer": model}
    sentencepiece.SentencePieceTrainer.train(**ids, **options, **plain)
    return Tokenizer((model.getvalue(),))


SUBWORDS = subword_tokenizer()
SIGNS = st.sampled_from("helo wrd 你好世界和平吗？ é龘𠮷\n.,'") | st.characters(exclude_categories=["Cs"])
TEXT = st.text(SIGNS, max_size=20)


@pytest.mark.parametrize("tokenizer", [TOKENIZER, SUBWORDS], ids=["characters", "pieces and bytes"])
@given(text=TEXT)
def test_pieces_stand_where_they_were_cut(tokenizer, text):
    sentence = split_words(text)
    spans = tokenizer.spans(text, "src")
    assert len(spans) == len(tokenizer.encode(text, "src"))
    covered = {place for start, stop in spans for place in range(start, stop)}
    seen = {place for place, sign in enumerate(sentence.text) if not sign.isspace()}
    assert seen <= covered
    assert spans == sorted(spans) and all(start < stop for start, stop in spans)
    joints = word_groups(sentence.spans, spans)
    assert [word for joint in joints for word in joint] == list(range(len(sentence.spans)))
    assert {*group_of_tokens(joints, sentence.spans, spans)} == {*range(len(joints))}


def test_pieces_of_chinese_and_english_by_hand():
    text = "lower 你好龘 world"
    pieces, spans = SUBWORDS.pieces(SUBWORDS.encode(text, "src"), "src"), SUBWORDS.spans(text, "src")
    seen = [(piece, text[start:stop]) for piece, (start, stop) in zip(pieces, spans, strict=True)]
    own = [(piece, part) for piece, part in seen if piece.strip("▁") and not piece.startswith("<0x")]
    assert all(piece.strip("▁") == part for piece, part in own)
    assert "".join(part for _, part in own) == "lower你好world"
    assert [(piece, part) for piece, part in seen if piece.startswith("<0x")] == [
        (f"<0x{byte:02X}>", "龘") for byte in "龘".encode()
    ]


def test_a_space_by_itself_goes_with_what_follows():
    assert TOKENIZER.spans("ab c", "src") == [(0, 1), (1, 2), (3, 4), (3, 4)]
