"""MarianMT models that Transformers wrote, taken over from their files alone: numbers, words, searches, looks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import regard
from regard.batch import make_batch
from regard.checkpoint import CARD, describe, read_settings
from regard.checkpoint.weights import load_model
from regard.engine.native import NativeEngine
from regard.engine.plain import plain_engine
from regard.foreign.incoming import read_incoming, write_incoming
from regard.trace.native_replay import native_replay
from regard.train.loss import LossModule
from tests.foreign.checks import logits, search, take_over, their_attentions, their_score
from tests.foreign.theirs import marian, sentences, trained_marian

VARIANTS = {
    "as OPUS-MT": {},
    "unscaled, gelu": {"scale_embedding": False, "activation_function": "gelu"},
    "relu": {"activation_function": "relu"},
    "two tables": {"share_encoder_decoder_embeddings": False},
    "two vocabularies": {"share_encoder_decoder_embeddings": False, "separate": True},
    "nothing forbidden": {"search": {"num_beams": 5, "max_length": 40}},
    "odd width": {"d_model": 15},
}
ODD = ["", "my", "  two  spaces ", "Ünïcode ﬁ Ａ 桥", "a\u2581b _", "e\u0301te\u0301", "tab\tand\nline", "!?!", "🙂 x"]
TEXTS = sentences(3, seed=9)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Makes each variant once."""
    made = {}

    def make(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("drawn")
            made[name] = take_over(marian(folder / "theirs", **VARIANTS[name]), folder / "ours")
        return made[name]

    return make


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return take_over(trained_marian(folder / "opus-mt-en-fr"), folder / "ours")


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_theirs(drawn, name):
    """Ours are those of the plain modules; numbers that are summed in the same order are the same to the last bit."""
    imported = drawn(name)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        theirs, ours = logits(imported, TEXTS, dtype)
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0.0)
    assert theirs.std() > 0.5, "logits that could differ"


@pytest.mark.parametrize("name", VARIANTS)
def test_the_native_engine_s_logits_are_theirs(drawn, name):
    imported = drawn(name)
    engine = regard.load(imported.folder).engine
    assert type(engine) is NativeEngine
    sources = [imported.our_ids(text) for text in TEXTS]
    rows, unwritten = imported.incoming.vocabulary.tgt.rows, imported.incoming.vocabulary.tgt.unwritten
    both = [i for i in range(len(rows)) if i not in unwritten]
    state = engine.decoder.start(sources, 1)
    written = np.full((3, 1), 2)
    for token in (2, 9, 10, 11):
        found, state = engine.decoder.step(np.full(3, token), state)
        written = written if token == 2 else np.concatenate([written, np.full((3, 1), token)], axis=1)
    read = imported.theirs.tokenizer(TEXTS, padding=True, return_tensors="pt")
    inputs = torch.tensor(np.array(rows)[written])
    with torch.no_grad():
        expected = imported.theirs.model(**read, decoder_input_ids=inputs).logits[:, -1, [rows[i] for i in both]]
    torch.testing.assert_close(torch.from_numpy(found[:, both]), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["as OPUS-MT", "two vocabularies"])
def test_texts_become_their_ids_and_ids_their_texts(drawn, name):
    imported = drawn(name)
    texts = [*sentences(60, seed=3), *ODD]
    ours = imported.incoming.tokenizer
    ids = [[*ours.encode(text, "src"), ours.eos_id] for text in texts]
    expected = [imported.theirs.ids(text) for text in texts]
    assert [imported.their_ids(each, "src") for each in ids] == expected
    assert [imported.their_ids([*each, 3], "src") for each in ours.encode_batch(texts, "src")] == expected
    unknown = imported.theirs.tokenizer.unk_token_id
    assert any(unknown in each for each in expected), "pieces that are not in the table"
    size = ours.vocab_size("tgt")
    for first in range(4, size - 9, 7):
        written = list(range(first, first + 9))
        said = imported.theirs.tokenizer.decode(imported.their_ids(written), skip_special_tokens=True)
        assert ours.decode(written) == said


def test_spans_are_those_of_the_text_as_it_was_given(drawn):
    tokenizer = drawn("as OPUS-MT").incoming.tokenizer
    for text in (*sentences(5, seed=4), *ODD[1:]):
        spans = tokenizer.spans(text, "src")
        assert len(spans) == len(tokenizer.encode(text, "src"))
        assert all(0 <= start <= stop <= len(text) for start, stop in spans)
    assert [("x old"[a:b]) for a, b in tokenizer.spans("x old", "src")][-1] == "old"


SEARCHES = [
    {"num_beams": 1},
    {"num_beams": 5},
    {"num_beams": 5, "early_stopping": True},
    {"num_beams": 5, "early_stopping": "never"},
    {"num_beams": 4, "length_penalty": 0.4},
    {"num_beams": 3, "length_penalty": 0.0},
]


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_200_sentences_are_written_as_theirs(trained, options):
    """Ties are listed: where outputs differ, their own model gives both the same score."""
    texts = sentences(200, seed=5)
    made = search(trained, texts, **options)
    assert len(set(map(tuple, made.ours))) > 150, "sentences that could differ"
    assert sum(each.finished for each in made.found) > 195
    penalty = options.get("length_penalty", 1.0)
    for i in made.differing:
        scores = [their_score(trained, texts[i], ids, penalty) for ids in (made.theirs[i], made.ours[i])]
        assert scores[0] == pytest.approx(scores[1], abs=1e-6), (texts[i], made.theirs[i], made.ours[i])
    assert len(made.differing) <= 2


def test_plain_modules_write_the_same(trained):
    texts = sentences(40, seed=6)
    translator = regard.load(trained.folder)
    plain = replace(translator, engine=plain_engine(load_model(trained.folder).model, "float32"))
    for options in ({"num_beams": 1}, {"num_beams": 5}, {"num_beams": 5, "early_stopping": "never"}):
        native, made = (search(trained, texts, each, **options) for each in (translator, plain))
        assert native.ours == made.ours
        assert [each.score for each in native.found] == pytest.approx([each.score for each in made.found], abs=1e-5)


def test_8_bits_write_nearly_the_same(trained):
    texts = sentences(100, seed=7)
    translator = regard.load(trained.folder, "int8")
    assert translator.engine.precision == "int8"
    made = search(trained, texts, translator)
    assert len(made.differing) < 25 and sum(each.finished for each in made.found) > 95


@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_a_model_that_hardly_ends_writes_the_same_to_the_longest_length(tmp_path, options, forced):
    """Theirs forces the end there, or counts what it breaks off as ended."""
    theirs = marian(tmp_path / "theirs", forced_eos_token_id=0 if forced else None)
    with torch.no_grad():
        theirs.model.final_logits_bias[0, 0] += 3.0
    theirs.model.generation_config.forced_eos_token_id = 0 if forced else None
    theirs.model.save_pretrained(theirs.folder)
    imported = take_over(theirs, tmp_path / "ours")
    made = search(imported, sentences(100, seed=8), **options)
    assert max(map(len, made.theirs)) == 38 + (not forced) and len(set(map(tuple, made.ours))) > 3
    assert made.differing == []


def test_a_token_that_is_not_forbidden_may_be_written(tmp_path):
    """As theirs does: <unk> and <pad> are tokens like others where nobody forbids them."""
    theirs = marian(tmp_path / "theirs", search={"num_beams": 1, "max_length": 20})
    with torch.no_grad():
        theirs.model.final_logits_bias[0, theirs.tokenizer.unk_token_id] += 30.0
        theirs.model.final_logits_bias[0, theirs.tokenizer.pad_token_id] += 15.0
    theirs.model.save_pretrained(theirs.folder)
    imported = take_over(theirs, tmp_path / "ours")
    made = search(imported, TEXTS)
    assert made.differing == [] and theirs.tokenizer.unk_token_id in made.ours[0]
    assert regard.load(imported.folder).translate(TEXTS)[0].text == ""


def test_probabilities_that_are_made_anew_have_none_for_padding(tmp_path):
    search_ = {"num_beams": 5, "max_length": 30, "renormalize_logits": True}
    theirs = marian(tmp_path / "theirs", search=search_)
    pad = theirs.tokenizer.pad_token_id
    theirs.model.generation_config.bad_words_ids = [[pad]]
    with torch.no_grad():
        theirs.model.final_logits_bias[0, pad] += 9.0
    theirs.model.save_pretrained(theirs.folder)
    imported = take_over(theirs, tmp_path / "ours")
    texts = sentences(20, seed=2)
    made = search(imported, texts)
    batch = theirs.tokenizer(texts, padding=True, return_tensors="pt")
    more = {"return_dict_in_generate": True, "output_scores": True}
    scores = theirs.model.generate(**batch, **more).sequences_scores.tolist()
    assert [each.score for each in made.found] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("reader", ["modules", "arrays"])
def test_traces_see_what_their_model_attended_to(trained, reader):
    """Within 1e-6, whether a path is read again by PyTorch or, where that is not installed, in NumPy."""
    translator, text = regard.load(trained.folder), sentences(1, seed=11)[0]
    traced = regard.trace_texts(translator, [text])[0]
    source = trained.our_ids(text)
    written = [node.token for node in traced.trace.tree.path(traced.trace.end_node)]
    maps = traced.trace.attention
    if reader == "arrays":
        maps = native_replay(translator.engine.decoder.weights, source, written).attention
    expected = their_attentions(trained, text, written)
    assert {(each.kind, each.layer) for each in maps} == expected.keys()
    for each in maps:
        weights = torch.as_tensor(np.asarray(each.weights()))
        torch.testing.assert_close(weights, expected[each.kind, each.layer], atol=1e-6, rtol=0.0)
        assert each.error() < 1e-5
        for head in range(4):
            assert each.terms(head).error < 1e-4
    assert list(traced.trace.source) == translator.tokenizer.pieces([*source, 3], "src")
    assert traced.trace.check().log_prob < 1e-4 and traced.text == translator.translate([text])[0].text


def test_a_folder_of_theirs_is_a_model_wherever_one_is_named(trained, monkeypatch, tmp_path):
    """Its copy lies in the cache, and is made anew where the folder has changed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = sentences(1, seed=12)
    translator = regard.load(trained.theirs.folder)
    assert (translator.src_lang, translator.tgt_lang) == ("en", "fr")
    assert translator.translate(text) == regard.load(trained.folder).translate(text)
    copies = list((tmp_path / "regard" / "imported").iterdir())
    again = regard.load(trained.theirs.folder)
    assert [each.name for each in copies] == [each.name for each in (tmp_path / "regard" / "imported").iterdir()]
    assert again.translate(text) == translator.translate(text)
    (trained.theirs.folder / "note.txt").write_text("x")
    regard.load(trained.theirs.folder)
    (trained.theirs.folder / "note.txt").unlink()
    (now,) = (tmp_path / "regard" / "imported").iterdir()
    assert now.name != copies[0].name and now.name.startswith("opus-mt-en-fr-")


def test_what_is_written_is_a_model_like_others(trained):
    about = describe(trained.folder)
    assert about["parameters"] == sum(array.size for array in trained.incoming.arrays.values())
    made = read_settings(trained.folder / "config.json")
    assert (made.decode.beam, made.decode.early_stopping, made.decode.max_extra) == (5, "heuristic", 39)
    assert (made.data.src_lang, made.data.tgt_lang, made.text.max_len) == ("en", "fr", 47)
    card = (trained.folder / CARD).read_text(encoding="utf-8")
    assert "MarianMT, imported from opus-mt-en-fr" in card and "Licence: not named in the folder" in card


def test_a_language_that_a_source_begins_with(tmp_path):
    """Of a model that writes several, --to names one; a text that names another itself is obeyed."""
    theirs = marian(tmp_path / "opus-mt-en-ROMANCE", codes=("fra", "spa"))
    imported = take_over(theirs, tmp_path / "ours", tgt="spa")
    assert imported.their_ids(imported.our_ids("the road"), "src") == theirs.ids(">>spa<< the road")[:-1]
    assert imported.their_ids(imported.our_ids(">>fra<< the road"), "src") == theirs.ids(">>fra<< the road")[:-1]
    assert imported.our_ids("") == []
    assert read_incoming(theirs.folder, tgt="fra", strict=True).settings.data.tgt_lang == "fra"
    with pytest.raises(ValueError, match=r"must be a language of the model \(fra, spa\), got deu: name one"):
        read_incoming(theirs.folder, tgt="deu", strict=True)
    spans = imported.incoming.tokenizer.spans(">>fra<< the road", "src")
    assert spans[0] == (0, 7) and len(spans) == len(imported.our_ids(">>fra<< the road"))


def test_a_model_that_was_taken_over_can_learn_on(trained, tmp_path):
    """Fine-tuning asks for gradients of everything, the bias of logits included."""
    made = load_model(trained.folder)
    loss = LossModule(made.model.train(), label_smoothing=0.1)
    batch = make_batch([trained.our_ids(text) for text in TEXTS], [[9, 10, 11], [12], [13, 14]])
    total, nll = loss(batch)
    total.backward()
    assert made.model.output.bias.grad.abs().sum() > 0 and total > nll * 0.5


def test_its_licence_is_that_of_its_folder(trained, tmp_path):
    (trained.theirs.folder / "README.md").write_text("---\nlanguage: en\nlicense: cc-by-4.0\n---\n# x\n")
    write_incoming(read_incoming(trained.theirs.folder), tmp_path / "out")
    (trained.theirs.folder / "README.md").unlink()
    assert "\nLicence: cc-by-4.0\n" in (tmp_path / "out" / CARD).read_text(encoding="utf-8")


def test_an_address_that_its_pieces_cannot_spell_is_no_error(trained):
    """A search that has lost an address is made once more with it, where there are pieces for it."""
    assert regard.load(trained.folder).translate("the road 2024 a@b.c is wide.")[0].text
