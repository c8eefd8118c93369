"""The tokenizer.json of a model against our own tokenizer."""

import io
import json
from dataclasses import replace

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as TheirTokenizer

from regard.data.normalise import simplifying_rules
from regard.data.tokenizer import Tokenizer
from regard.exchange.tokenizer_json import tokenizer_json, vocabulary
from tests.exchange.small import CHINESE, ENGLISH, TEXT, small_tokenizer

KINDS = {
    "unigram": TEXT,
    "bpe": replace(TEXT, kind="bpe", symbols=()),
    "characters": replace(TEXT, kind="characters", vocab_size=340, symbols=()),
    "no bytes": replace(TEXT, byte_fallback=False, vocab_size=110, symbols=()),
}
MARKED = "a </s> b <s> <unk> <0x41>"
# What normalisation, folding and cutting each have a rule for.
TEXTS = (
    *CHINESE,
    *ENGLISH,
    "",
    " \u3000 ",
    "  The\u00a0 river \t\n is  wide ",
    "e\u0301t\u00e9 \ufb01 \uff21",
    "a\u200bb\ufeffc\x07d",
    "a\u2581b _",
    "橋很舊，誰造了這座橋",
    "乾坤 一目瞭然 乾杯",
    "<bt> The river <bt>",
    "🙂 ﷺ",
    MARKED,
)


def both(kind: str) -> tuple[Tokenizer, TheirTokenizer]:
    ours = small_tokenizer(KINDS[kind])
    theirs = TheirTokenizer.from_str(json.dumps(tokenizer_json(ours.models[0], "src" in ours.simplified)))
    theirs.encode_special_tokens = True
    return ours, theirs


# Parted, so that no text says a special token, unknown characters on both sides of the place are two.
CASES = [(kind, text) for kind in KINDS for text in TEXTS if (kind, text) != ("no bytes", MARKED)]


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_their_tokenizer_cuts_as_ours(kind, text):
    ours, theirs = both(kind)
    ids = theirs.encode(text).ids
    assert ids == [*ours.encode(text, "src"), ours.eos_id]
    assert theirs.decode(ids) == ours.decode(ids[:-1], "src").replace(" ⁇ ", "") or kind == "no bytes"


OURS, THEIRS = both("unigram")
RULES = simplifying_rules()


@given(
    st.text(
        alphabet=st.one_of(st.sampled_from("The river is wide河很宽 \n\u3000橋舊乾e\u0301"), st.characters()),
        max_size=30,
    )
)
def test_any_text_is_cut_as_ours(text):
    clean = text.encode("utf-8", "ignore").decode()  # theirs takes no lone surrogates
    assert THEIRS.encode(clean).ids == [*OURS.encode(clean, "src"), OURS.eos_id]


@pytest.mark.parametrize("word", list(RULES[1])[::40])
def test_words_that_are_read_otherwise_are_folded_as_ours(word):
    assert THEIRS.encode(word).ids == [*OURS.encode(word, "src"), OURS.eos_id]


def test_each_id_has_its_name():
    for kind in KINDS:
        ours = small_tokenizer(KINDS[kind])
        names = vocabulary(tokenizer_json(ours.models[0], False))
        assert len(names) == len(set(names)) == ours.vocab_size("src")
    names = vocabulary(tokenizer_json(OURS.models[0], False))
    assert names == OURS.pieces(range(len(names)), "src")


def test_spaces_after_words_are_refused():
    made = io.BytesIO()
    texts = iter(["a b c a b c"])
    options = {"vocab_size": 9, "model_type": "char", "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=texts, model_writer=made, treat_whitespace_as_suffix=True, **options
    )
    with pytest.raises(ValueError, match="must have spaces before words, got a model with treat_whitespace_as_suffix"):
        tokenizer_json(made.getvalue(), False)
