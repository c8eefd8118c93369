"""Characters as pieces: nothing of a text is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import TextSettings
from regard.text.characters import Characters, learn_characters
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import train_tokenizer

TEXT = "To be, or not to be:\n\n  床前明月光\t疑是地上霜 \r\n"
WITH_BYTES = Tokenizer((learn_characters([TEXT], 1000, spell=True),))
WITHOUT = Tokenizer((learn_characters([TEXT], 1000, spell=False),))
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
    model = learn_characters(["aaabbc", "cdde"], 4 + 3, spell=False)
    assert Characters(model).characters == ["a", "b", "c"], "b, c and d are as common; signs decide"
    assert learn_characters(["eddc", "cbbaaa"], 4 + 3, spell=False) == model
    assert "\ud800" not in Characters(learn_characters(["a\ud800"], 100, spell=False)).characters


def test_a_folder_holds_it(tmp_path):
    WITH_BYTES.save(tmp_path)
    assert Tokenizer.load(tmp_path).models == WITH_BYTES.models
    assert Tokenizer.load(tmp_path).exact
    (tmp_path / "tokenizer.model").write_bytes(WITH_BYTES.models[0][:-9])
    with pytest.raises(ValueError, match=r"tokenizer.model: a tokenizer of characters must be a whole JSON file"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.model").write_text('{"characters": ["ab"], "bytes": true}')
    with pytest.raises(ValueError, match="single characters is expected"):
        Tokenizer.load(tmp_path)


def test_pairs_may_be_cut_into_characters_too():
    settings = TextSettings(kind="characters", vocab_size=300, joint=False)
    tokenizer = train_tokenizer([("介绍", "Introduce it")], settings, lambda said: None, seed=0)
    assert tokenizer.vocab_size("src") == 260 + 2 and tokenizer.exact
    assert tokenizer.decode(tokenizer.encode("介绍", "src"), "src") == "介绍"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 260}, "room for characters besides 260 ids of its own, got 260"),
        ({"symbols": ("<bt>",)}, r"have no symbols, got text.symbols \('<bt>',\)"),
        ({"sampling": 0.1}, "got text.sampling 0.1"),
    ],
)
def test_settings_that_characters_cannot_have(changes, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer([("a", "b")], TextSettings(**{"kind": "characters"} | changes), lambda said: None, seed=0)
