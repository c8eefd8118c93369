"""A reader's folder: what is saved is what is loaded, and what is wrong is named."""

import json
from dataclasses import replace

import pytest
import torch

from regard.checkpoint.reading import QuestionReader, build_reader, load_reader, save_reader
from regard.config import PartSettings
from regard.decode.answers import answer_questions

from ..readers import MODEL, WINDOWS, questions, small_reader


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
    ("model", "windows", "said"),
    [
        ({"family": "recurrent", "position": PartSettings("none")}, {}, "got 'recurrent'"),
        ({"position": PartSettings("learned", {"max_len": 30})}, {}, "at most 30, the model's positions, got 37"),
        ({}, {"stride": 90}, "got 90"),
    ],
)
def test_what_cannot_read_is_refused(model, windows, said):
    settings = replace(small_reader().settings, model=replace(MODEL, **model), windows=replace(WINDOWS, **windows))
    with pytest.raises(ValueError, match=said):
        build_reader(settings, 50)


def test_a_reader_has_its_encoder_and_no_decoder():
    reader = small_reader()
    assert isinstance(reader, QuestionReader)
    assert {name.split(".")[0] for name in reader.model.state_dict()} == {"words", "encoder", "marks", "ends"}
