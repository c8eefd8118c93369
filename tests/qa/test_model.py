"""A reader's folder: what is saved is what is loaded, and what is wrong is named.

The reader of spans: padding and company change nothing, and only the text can answer.
"""

import json
from dataclasses import replace

import pytest
import torch

from regard.config import PartSettings
from regard.qa.data import cut_passage, make_passage
from regard.qa.model import MaskedWords, QuestionReader, build_reader, load_reader, save_reader
from regard.qa.predict import answer_questions, make_reader_batch
from tests.readers import MODEL, WINDOWS, questions, small_reader


def saved(folder):
    reader = small_reader()
    reader.model.float()
    save_reader(folder, reader, {"valid": {"f1": 50.0}})
    return reader


def test_a_reader_comes_back_as_it_was(tmp_path):
    reader = saved(tmp_path / "reader")
    again = load_reader(tmp_path / "reader")
    assert again.settings == reader.settings
    assert again.model.state_dict().keys() == reader.model.state_dict().keys()
    for name, tensor in reader.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor), name
    assert list(answer_questions(again, questions())) == list(answer_questions(reader, questions()))
    assert json.loads((tmp_path / "reader" / "scores.json").read_text()) == {"valid": {"f1": 50.0}}
    assert [path.name for path in tmp_path.iterdir()] == ["reader"]


def test_what_is_no_reader_is_named(tmp_path):
    with pytest.raises(ValueError, match="nowhere: there is no such folder"):
        load_reader(tmp_path / "nowhere")
    saved(tmp_path / "reader")
    config = tmp_path / "reader" / "config.json"
    whole = json.loads(config.read_text())
    config.write_text(json.dumps({**whole, "kind": "translator"}))
    with pytest.raises(ValueError, match=r"config.json: this must be a reader of questions, got another model"):
        load_reader(tmp_path / "reader")
    config.write_text(json.dumps({**whole, "settings": {**whole["settings"], "window": {}}}))
    with pytest.raises(ValueError, match=r"config.json: unknown setting 'window'"):
        load_reader(tmp_path / "reader")
    config.write_text(json.dumps(whole))
    (tmp_path / "reader" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model.safetensors"):
        load_reader(tmp_path / "reader")


@pytest.mark.parametrize(
    ("model", "windows", "message"),
    [
        ({"family": "recurrent", "position": PartSettings("none")}, {}, "got 'recurrent'"),
        ({"position": PartSettings("learned", {"max_len": 30})}, {}, "at most 30, the model's positions, got 37"),
        ({}, {"stride": 90}, "got 90"),
    ],
)
def test_what_cannot_read_is_refused(model, windows, message):
    settings = replace(small_reader().settings, model=replace(MODEL, **model), windows=replace(WINDOWS, **windows))
    with pytest.raises(ValueError, match=message):
        build_reader(settings, 50)


def test_a_reader_has_its_encoder_and_no_decoder():
    reader = small_reader()
    assert isinstance(reader, QuestionReader)
    assert {name.split(".")[0] for name in reader.model.state_dict()} == {"words", "encoder", "marks", "ends"}


SCHEMES = ["none", "sinusoidal", "learned", "rotary", "t5", "alibi", "shaw"]


def windows(reader):
    made = [make_passage(question, reader.tokenizer, WINDOWS) for question in questions()]
    return [window for n, passage in enumerate(made) for window in cut_passage(passage, n, WINDOWS)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_padding_and_company_change_nothing(scheme):
    reader = small_reader(model=replace(MODEL, position=PartSettings(scheme)))
    cut = windows(reader)
    assert len({len(window.ids) for window in cut}) > 1, "windows differ in length"
    with torch.no_grad():
        together = reader.model(make_reader_batch(cut, width=61))
        turned = reader.model(make_reader_batch(cut[::-1]))
        for n, window in enumerate(cut):
            alone = reader.model(make_reader_batch([window], width=len(window.ids) + 1))
            for one, many, back in zip(alone, together, turned, strict=True):
                torch.testing.assert_close(many[n, : len(one[0])], one[0])
                torch.testing.assert_close(back[len(cut) - 1 - n, : len(one[0])], one[0])


def test_an_answer_begins_and_ends_in_the_text_or_at_the_first_token():
    reader = small_reader()
    window = windows(reader)[0]
    for logits in reader.model(make_reader_batch([window])):
        open_ = torch.isfinite(logits[0]).nonzero()[:, 0].tolist()
        assert open_ == [0, *range(window.offset, len(window.ids))]


def test_the_question_decides_and_marks_are_read():
    reader = small_reader()
    window = windows(reader)[0]
    other = replace(window, ids=[window.ids[0], window.ids[2], window.ids[1], *window.ids[3:]])
    unmarked = replace(window, marks=[min(mark, 1) for mark in window.marks])
    assert unmarked.marks != window.marks
    with torch.no_grad():
        start, moved, plain = (reader.model(make_reader_batch([each]))[0][0, 0] for each in (window, other, unmarked))
    assert start != moved
    assert start != plain


def test_hidden_words_are_told_by_the_readers_own_table():
    reader = small_reader()
    cut = windows(reader)
    reading = make_reader_batch(cut)
    hidden = torch.zeros_like(reading.marks, dtype=torch.bool)
    hidden[0, 3] = hidden[1, 2] = True
    model = MaskedWords(reader.model).double()
    logits = model(reading, hidden)
    assert logits.shape == (2, reader.tokenizer.vocab_size("src"))
    vectors = model.to_word(reader.model.read(reading)[1, 2])
    torch.testing.assert_close(logits[1], reader.model.words.table.weight @ vectors)
