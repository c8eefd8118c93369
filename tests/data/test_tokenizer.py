"""Characters as pieces: nothing of a text is lost.

Tokenizers: text comes back exactly, files are whole or refused.
"""

import io
from dataclasses import replace
from functools import cache

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from regard.config import TextSettings
from regard.data.normalise import normalise
from regard.data.tokenizer import CharacterProcessor, Tokenizer, train_characters
from regard.data.vocabulary import train_tokenizer
from regard.zoo import find_model
from tests.data.corpora import any_text, sentences

TEXT = "To be, or not to be:\n\n  床前明月光\t疑是地上霜 \r\n"
WITH_BYTES = Tokenizer((train_characters([TEXT], 1000, byte_fallback=True),))
WITHOUT = Tokenizer((train_characters([TEXT], 1000, byte_fallback=False),))
whole = st.text(st.characters(exclude_categories=("Cs",)))


@given(whole)
def test_any_text_comes_back_as_it_was(text):
    assert WITH_BYTES.decode(WITH_BYTES.encode(text, "tgt")) == text
    assert WITH_BYTES.encode_batch([text, text], "src") == [WITH_BYTES.encode(text, "src")] * 2


@given(st.text(st.sampled_from(sorted(set(TEXT)))))
def test_without_bytes_a_known_character_is_one_piece(text):
    ids = WITHOUT.encode(text, "tgt")
    assert len(ids) == len(text) and WITHOUT.decode(ids) == text
    assert min(ids, default=4) >= 4


@given(whole)
def test_spans_name_the_character_of_each_piece(text):
    ids, spans = WITH_BYTES.encode(text, "tgt"), WITH_BYTES.spans(text, "tgt")
    assert len(ids) == len(spans)
    assert "".join(text[start:stop] for start, stop in dict.fromkeys(spans)) == text


def test_what_is_unknown_and_what_is_special():
    assert WITHOUT.encode("q", "tgt") == [Tokenizer.unk_id]
    assert (
        WITHOUT.decode([Tokenizer.bos_id, *WITHOUT.encode("be", "tgt"), Tokenizer.unk_id, Tokenizer.eos_id, 0]) == "be⁇"
    )
    assert WITHOUT.pieces(WITHOUT.encode("o \n\t床", "tgt"), "tgt") == ["o", "▁", "⏎", "⇥", "床"]
    assert WITHOUT.pieces([0, 1, 2, 3], "tgt") == ["<pad>", "<unk>", "<s>", "</s>"]
    assert WITH_BYTES.pieces(WITH_BYTES.encode("é", "tgt"), "tgt") == ["<0xC3>", "<0xA9>"]
    assert WITHOUT.vocab_size("src") == 4 + len(set(TEXT)) == WITH_BYTES.vocab_size("tgt") - 256
    assert WITHOUT.exact and WITHOUT.joint and WITHOUT.symbols == set()


def test_the_commonest_are_kept_whatever_their_order():
    model = train_characters(["aaabbc", "cdde"], 4 + 3, byte_fallback=False)
    assert CharacterProcessor(model).characters == ["a", "b", "c"], "b, c and d are as common; signs decide"
    assert train_characters(["eddc", "cbbaaa"], 4 + 3, byte_fallback=False) == model
    assert "\ud800" not in CharacterProcessor(train_characters(["a\ud800"], 100, byte_fallback=False)).characters


def test_a_folder_holds_it(tmp_path):
    WITH_BYTES.save(tmp_path)
    assert Tokenizer.load(tmp_path).models == WITH_BYTES.models
    assert Tokenizer.load(tmp_path).exact
    (tmp_path / "tokenizer.model").write_bytes(WITH_BYTES.models[0][:-9])
    with pytest.raises(ValueError, match=r"tokenizer.model: a character tokenizer must be a complete JSON file"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.model").write_text('{"characters": ["ab"], "bytes": true}')
    with pytest.raises(ValueError, match="single characters is expected"):
        Tokenizer.load(tmp_path)


def test_pairs_may_be_cut_into_characters_too():
    settings = TextSettings(kind="characters", vocab_size=300, joint=False)
    tokenizer = train_tokenizer([("介绍", "Introduce it")], settings, lambda message: None, seed=0)
    assert tokenizer.vocab_size("src") == 260 + 2 and tokenizer.exact
    assert tokenizer.decode(tokenizer.encode("介绍", "src"), "src") == "介绍"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 260}, "must exceed the 260 reserved ids, got 260"),
        ({"symbols": ("<bt>",)}, r"and no symbols, got text.symbols \('<bt>',\)"),
        ({"sampling": 0.1}, "got text.sampling 0.1"),
    ],
)
def test_settings_that_characters_cannot_have(changes, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer([("a", "b")], TextSettings(**{"kind": "characters"} | changes), lambda message: None, seed=0)


KINDS = ["unigram", "bpe"]
PAIRS = sentences(200)
TOKENIZER_TEXT = "介绍一下西安，please introduce the city."


@cache
def make(kind="unigram", joint=True):
    settings = TextSettings(kind=kind, vocab_size=420, joint=joint)
    return train_tokenizer(PAIRS, settings, lambda message: None, seed=1)


TEXTS = any_text("▁▅ \t\u3000<s/>0x41⁇，。！？（）“”ＡﬁÅe\u0301\u200d𠀀😀\ud800")


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
def test_any_text_comes_back(kind, joint, text):
    tokenizer = make(kind, joint)
    for side in ("src", "tgt"):
        ids = tokenizer.encode(text, side)
        assert tokenizer.decode(ids, side) == normalise(text)
        assert all(3 < i < tokenizer.vocab_size(side) for i in ids), "no special id, and none that is unknown"


@pytest.mark.parametrize("text", ["你好，世界！（西安）：“对”；《书》、…—～", "<s> </s> <pad> <unk> <0x41> ⁇ ▅"])
def test_signs_with_a_meaning_survive(text):
    assert make().decode(make().encode(text, "src")) == text


@pytest.mark.parametrize("kind", KINDS)
def test_many_texts_are_cut_as_each_alone(kind):
    texts = [src for src, _ in PAIRS[:50]] + ["", TOKENIZER_TEXT]
    assert make(kind).encode_batch(texts, "src") == [make(kind).encode(text, "src") for text in texts]
    assert make(kind).encode_batch([], "src") == []


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_spell_the_text(kind):
    text = "please introduce the city"
    pieces = make(kind).pieces(make(kind).encode(text, "tgt"), "tgt")
    assert 4 <= len(pieces) < len(text)
    assert "".join(pieces) == "▁" + text.replace(" ", "▁")
    assert make(kind).pieces([0, 1, 2, 3], "tgt") == ["<pad>", "<unk>", "<s>", "</s>"]


def test_special_ids_vanish_and_unknown_ones_show():
    ids = make().encode("the city", "tgt")
    assert make().decode([2, *ids, 3, 0, 0]) == "the city"
    assert make().decode([]) == ""
    assert "⁇" in make().decode([1])


@pytest.mark.parametrize("wrong", [-1, 420])
def test_an_id_that_is_no_piece_is_named(wrong):
    with pytest.raises(ValueError, match=rf"ids must lie in 0 … 419, got {wrong}"):
        make().decode([5, wrong])
    with pytest.raises(ValueError, match=rf"ids must lie in 0 … 419, got {wrong}"):
        make().pieces([wrong], "src")


@pytest.mark.parametrize(("joint", "n_files"), [(True, 1), (False, 2)])
def test_what_was_saved_is_loaded(tmp_path, joint, n_files):
    make(joint=not joint).save(tmp_path)  # of an earlier run
    make(joint=joint).save(tmp_path)
    assert len(list(tmp_path.iterdir())) == n_files
    loaded = Tokenizer.load(tmp_path)
    assert loaded.joint == joint
    assert loaded.models == make(joint=joint).models
    assert loaded.encode(TOKENIZER_TEXT, "src") == make(joint=joint).encode(TOKENIZER_TEXT, "src")


def test_separate_sides_have_their_own_pieces():
    tokenizer = make(joint=False)
    assert tokenizer.encode(TOKENIZER_TEXT, "src") != tokenizer.encode(TOKENIZER_TEXT, "tgt")


def test_a_tokenizer_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer\.src\.model: no such file; a tokenizer is tokenizer\.model, or"):
        Tokenizer.load(tmp_path)
    make(joint=False).save(tmp_path)
    (tmp_path / "tokenizer.tgt.model").unlink()
    with pytest.raises(ValueError, match=r"tokenizer\.tgt\.model: no such file"):
        Tokenizer.load(tmp_path)


DAMAGED = {
    "truncated": (lambda model: model[: len(model) // 2], r"complete SentencePiece model, got \d+ other bytes"),
    "a byte short": (lambda model: model[:-1], r"complete SentencePiece model, got \d+ other bytes"),
    "foreign": (lambda model: b"a zip, or a poem", "complete SentencePiece model, got 16 other bytes"),
    "empty": (lambda model: b"", "complete SentencePiece model, got an empty file"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_tokenizer_is_named(tmp_path, capfd, name):
    damage, expected = DAMAGED[name]
    (tmp_path / "tokenizer.model").write_bytes(damage(make().models[0]))
    with pytest.raises(ValueError, match=rf"tokenizer\.model: a tokenizer must be a {expected}"):
        Tokenizer.load(tmp_path)
    assert capfd.readouterr() == ("", "")


def test_a_tokenizer_with_other_special_ids_is_refused(tmp_path):
    model = io.BytesIO()
    texts = iter(src for src, _ in PAIRS)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=texts, model_writer=model, vocab_size=90, minloglevel=2)
    (tmp_path / "tokenizer.model").write_bytes(model.getvalue())
    with pytest.raises(
        ValueError, match=r"tokenizer\.model: the ids of .+ must be \[0, 1, 2, 3\], got \[-1, 0, 1, 2\]"
    ):
        Tokenizer.load(tmp_path)


def test_traditional_chinese_is_read_as_simplified_where_it_says_so():
    plain = Tokenizer((train_characters(["介绍紹一下西安"], 300, True),))
    folding = replace(plain, simplified=frozenset({"src"}))
    assert folding.encode("介紹", "src") == plain.encode("介绍", "src") != plain.encode("介紹", "src")
    assert folding.encode_batch(["介紹"], "src") == plain.encode_batch(["介绍"], "src")
    assert folding.encode("介紹", "tgt") == plain.encode("介紹", "tgt")
    assert folding.spans("介紹一下", "src") == [(n, n + 1) for n in range(4)]


def test_a_tokenizer_prints_what_it_is_and_not_its_file():
    assert repr(Tokenizer((train_characters(["abc"], 7, False),))) == "Tokenizer(characters, 7 pieces)"
    assert repr(Tokenizer.load(find_model("zh-en"))) == "Tokenizer(SentencePiece, 14,000 pieces)"
