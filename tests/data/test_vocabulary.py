"""Learning pieces: the same every time, no more than the text has, and without a sound."""

import random
from collections import Counter

import pytest

from regard.config import TextSettings
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import _reservoir, default_coverage, train_tokenizer
from tests.data.corpora import sentences

PAIRS = sentences(120)


def silent(message):
    pass


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("joint", [True, False])
def test_learning_is_repeatable_and_silent(capfd, kind, joint):
    settings = TextSettings(kind=kind, vocab_size=400, joint=joint)
    first = train_tokenizer(PAIRS, settings, silent, seed=1)
    assert train_tokenizer(iter(PAIRS), settings, silent, seed=2).models == first.models, "no sample, no chance"
    assert all(300 < first.vocab_size(side) <= 400 for side in ("src", "tgt"))
    assert first.joint == joint
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_small_text_gets_fewer_pieces_and_it_is_said(capfd, kind):
    message = []
    tokenizer = train_tokenizer(PAIRS[:10], TextSettings(kind=kind), message.append, seed=1)
    size = tokenizer.vocab_size("src")
    assert 256 + 4 < size < 8000
    assert message[0] == "training a tokenizer of 8,000 pieces on 20 sentences"
    assert message[-1] == f"text.vocab_size becomes {size:,}: the text has too few pieces for 8,000"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_two_short_sentences_suffice(kind):
    tokenizer = train_tokenizer([("嗨。", "Hi.")], TextSettings(kind=kind), silent, seed=1)
    assert tokenizer.decode(tokenizer.encode("你好 Hi.", "src")) == "你好 Hi."


def test_without_bytes_a_rare_sign_is_unknown():
    settings = TextSettings(vocab_size=100, byte_fallback=False)
    tokenizer = train_tokenizer(PAIRS, settings, silent, seed=1)
    assert Tokenizer.unk_id in tokenizer.encode("\N{SNOWMAN}", "src")


@pytest.mark.parametrize(
    ("texts", "coverage"),
    [
        (["你好"], 0.9995),
        (["ひらがな"], 0.9995),
        (["한국어"], 0.9995),
        (["hello"] * 3 + ["你好"], 0.9995),
        (["hello, süß, привет, नमस्ते, ，。"], 1.0),
        (["hello"] * 999 + ["stray 你"], 1.0),
    ],
)
def test_coverage_goes_by_script(texts, coverage):
    assert default_coverage(texts) == coverage


def test_rare_chinese_signs_are_no_pieces_unless_told():
    rare, chance = "鱻龘靐", random.Random(1)
    pairs = [("".join(chance.choices("的一是不了", k=50)), "a b c") for _ in range(400)] + [(rare, rare)]
    few = train_tokenizer(pairs, TextSettings(vocab_size=500), silent, seed=1)
    full = train_tokenizer(pairs, TextSettings(vocab_size=500, character_coverage=1.0), silent, seed=1)
    assert len(full.encode(rare, "src")) <= 1 + 3
    assert len(few.encode(rare, "src")) >= 9, "spelled in bytes, three to a sign"


def test_a_sample_is_fair_and_repeatable():
    pairs = [(str(i), "x") for i in range(20)]
    drawn = Counter(pair for seed in range(8000) for pair in _reservoir(iter(pairs), 5, random.Random(seed)))
    assert set(drawn) == set(pairs)
    # Each is drawn with chance 1/4: 2,000 of 8,000, give or take five times the deviation of 39.
    assert all(abs(count - 2000) < 195 for count in drawn.values())
    assert _reservoir(pairs, 5, random.Random(3)) == _reservoir(pairs, 5, random.Random(3))
    assert _reservoir(pairs, 30, random.Random(3)) == pairs


def test_a_large_text_is_sampled():
    message = []
    train_tokenizer(PAIRS, TextSettings(vocab_size=330), message.append, seed=1, max_pairs=50)
    assert message[0] == "training a tokenizer of 330 pieces on 100 sentences"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (TextSettings(vocab_size=0), r"text\.vocab_size must be 1 or more, got 0"),
        (
            TextSettings(vocab_size=100),
            r"text\.vocab_size must be 3\d\d or more for the characters .+, got 100; or lower",
        ),
        (TextSettings(character_coverage=0.5), r"text\.character_coverage must lie in 0\.9 … 1, got 0\.5"),
    ],
)
def test_settings_that_cannot_be_met_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(PAIRS, settings, silent, seed=1)


def test_sentences_that_are_all_alike_are_learned_once():
    message = []
    train_tokenizer([("的一是不了" * 200, "abcde" * 200)] * 100, TextSettings(), message.append, seed=1)
    assert message[0] == "training a tokenizer of 8,000 pieces on 2 sentences"


def test_no_text_is_named():
    with pytest.raises(ValueError, match="needs 1 or more sentences to train on, got 0"):
        train_tokenizer([], TextSettings(), silent, seed=1)


def test_another_complaint_of_the_library_is_passed_on():
    with pytest.raises(ValueError, match=r"no tokenizer can be trained on this text: .+"):
        train_tokenizer([("", "")], TextSettings(), silent, seed=1)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("joint", [True, False])
def test_symbols_are_pieces_that_survive(kind, joint):
    symbols = ("<bt>", "<2de>", 'a,"b')
    tokenizer = train_tokenizer(PAIRS, TextSettings(kind=kind, vocab_size=400, joint=joint, symbols=symbols), silent, 1)
    assert tokenizer.symbols == set(symbols)
    assert tokenizer.vocab_size("src") <= 400
    for side in ("src", "tgt"):
        for text in ("<bt> 介绍一下 the city", '介<bt>绍 a,"b.', "<2de><bt>"):
            ids = tokenizer.encode(text, side)
            assert tokenizer.decode(ids, side) == text
            assert sum(piece in symbols for piece in tokenizer.pieces(ids, side)) == text.count("<bt>") + sum(
                symbol in text for symbol in symbols[1:]
            )


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        (("a b",), "written without spaces, as normalised text, got 'a b'"),
        (("",), "got ''"),
        (("\u2581x",), "got '\u2581x'"),
        (("<s>",), "must be new, each named once, got '<s>', which is taken"),
        (("<0x41>",), "got '<0x41>', which is taken"),
        (("<bt>", "<bt>"), "got '<bt>', which is taken"),
    ],
)
def test_symbols_that_cannot_be_are_named(symbols, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(PAIRS, TextSettings(vocab_size=400, symbols=symbols), silent, 1)


def test_a_symbol_that_would_be_split_is_named():
    symbol, result = "introduce", Tokenizer.pieces
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tokenizer, "pieces", lambda *given: [piece for piece in result(*given) if piece != symbol])
        with pytest.raises(ValueError, match="must not be made of words of the text, got 'introduce'"):
            train_tokenizer(PAIRS, TextSettings(vocab_size=400, symbols=(symbol,)), silent, 1)
