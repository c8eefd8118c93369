"""BART, Pegasus, mBART, NLLB and M2M100, taken over from their files alone."""

import pytest
import torch

import regard
from regard.engine.native import NativeEngine
from regard.foreign.incoming import read_incoming
from tests.foreign.checks import logits, search, take_over, their_attentions
from tests.foreign.siblings import KINDS, LANGUAGES, sibling
from tests.foreign.theirs import sentences

# Positions of M2M100 and NLLB are not in their files: their program makes them in float32, by the machine's own sines.
FLOAT64 = {"NLLB": 2e-6, "M2M100": 2e-6}


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Makes each kind once."""
    made = {}

    def make(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp("siblings")
            made[kind] = take_over(sibling(kind, folder / "theirs"), folder / "ours")
        return made[kind]

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_theirs(imported, kind):
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, FLOAT64.get(kind, 1e-10))):
        theirs, ours = logits(imported(kind), sentences(3, seed=9), dtype)
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0.0)
    assert theirs.std() > 0.5, "logits that could differ"


@pytest.mark.parametrize("kind", KINDS)
def test_texts_become_their_ids(imported, kind):
    made = imported(kind)
    tokenizer = made.incoming.tokenizer
    for text in (*sentences(40, seed=3), "Ünïcode ﬁ Ａ", "  two  spaces", "🙂 x"):
        ids = tokenizer.encode(text, "src")
        assert made.their_ids([*ids, 3], "src") == made.theirs.ids(text)
        assert len(tokenizer.spans(text, "src")) == len(ids)
    written = list(range(10, 30))
    said = made.theirs.tokenizer.decode(made.their_ids(written), skip_special_tokens=True)
    assert tokenizer.decode(written).split() == said.split()


@pytest.mark.parametrize("options", [{"num_beams": 1}, {}, {"num_beams": 5, "early_stopping": False}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_200_sentences_are_written_as_theirs(imported, kind, options):
    """Token by token, those that reach the longest length included."""
    made = imported(kind)
    translator = regard.load(made.folder)
    assert type(translator.engine) is NativeEngine
    found = search(made, sentences(200, seed=5), translator, **options)
    assert len(set(map(tuple, found.ours))) > 8, "sentences that could differ"
    assert len(set(map(len, found.theirs))) > 2
    assert found.differing == []


@pytest.mark.parametrize("kind", KINDS)
def test_plain_modules_and_8_bits(imported, kind, monkeypatch):
    made, texts = imported(kind), sentences(20, seed=6)
    native = search(made, texts)
    small = search(made, texts, regard.load(made.folder, "int8"))
    assert len([i for i in range(20) if small.ours[i] != native.ours[i]]) < 12
    monkeypatch.setenv("REGARD_NATIVE", "0")
    assert search(made, texts, regard.load(made.folder)).ours == native.ours


@pytest.mark.parametrize("kind", KINDS)
def test_traces_see_what_their_model_attended_to(imported, kind):
    made, text = imported(kind), sentences(1, seed=11)[0]
    translator = regard.load(made.folder)
    trace = regard.trace_texts(translator, [text])[0].trace
    written = [node.token for node in trace.tree.path(trace.end_node)]
    expected = their_attentions(made, text, written)
    for each in trace.attention:
        weights = torch.as_tensor(each.weights())
        torch.testing.assert_close(weights, expected[each.kind, each.layer], atol=2e-6, rtol=0.0)
        assert each.terms(0).error < 1e-4


@pytest.mark.parametrize("kind", LANGUAGES)
def test_languages_are_chosen_when_a_model_is_loaded(imported, kind, tmp_path):
    made, (src, tgt) = imported(kind), LANGUAGES[kind]
    translator, text = regard.load(made.folder), sentences(1, seed=13)[0]
    assert (translator.src_lang, translator.tgt_lang) == (src, tgt)
    turned = regard.load(made.folder, src_lang=tgt, tgt_lang=src)
    first = turned.translate(text)[0]
    assert first.source_tokens[0].strip("_") == tgt and first.tokens[0].strip("_") == src
    assert translator.translate(text)[0].tokens[0].strip("_") == tgt
    assert turned.translate(text, regard.load("zh-en").settings)[0].tokens[0].strip("_") == src
    prefixed = turned.translate(text, prefix="road")[0]
    assert prefixed.tokens[0].strip("_") == src and prefixed.text.startswith("road")
    with pytest.raises(ValueError, match="unknown language of this model 'tlh'"):
        regard.load(made.folder, tgt_lang="tlh")
    (made.theirs.folder / "tokenizer_config.json").rename(tmp_path / "kept")
    unnamed = read_incoming(made.theirs.folder)
    with pytest.raises(ValueError, match=r"the languages of a model must be known, got None and None: name them"):
        read_incoming(made.theirs.folder, strict=True)
    (tmp_path / "kept").rename(made.theirs.folder / "tokenizer_config.json")
    with pytest.raises(ValueError, match=r"must be told which two are meant .*, got src and tgt: name them"):
        unnamed.tokenizer.check_languages()
