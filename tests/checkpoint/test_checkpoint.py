"""Models on disk: whole or not at all, moved elsewhere, and refused where a file is not what it should be."""

import json
import os
import shutil
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard.checkpoint.weights
from regard.batch import make_batch
from regard.build import build_model
from regard.checkpoint import describe, model_folder, read_json, settings_table
from regard.checkpoint.weights import load_model, save_model, unique_tensors
from regard.config import ModelSettings, PartSettings, Settings, parse_settings
from tests.parts import exactly
from tests.processes import start
from tests.train.tiny import trained_once

FILES = ["model.safetensors", "config.json", "tokenizer.model"]


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    return trained_once(tmp_path_factory)


@pytest.fixture
def model(trained, tmp_path):
    """A copy of a model that a test may damage."""
    return shutil.copytree(trained / "model", tmp_path / "model")


def test_a_model_whose_position_was_concatenated_still_loads(model, tmp_path):
    part = PartSettings("sinusoidal", {"join": "concatenate"})
    one = load_model(model)
    made = replace(one.settings, model=replace(one.settings.model, tie="inputs", position=part))
    torch.manual_seed(0)
    built = build_model(made.model, (one.tokenizer.vocab_size("src"), one.tokenizer.vocab_size("tgt")))
    save_model(tmp_path / "old", replace(one, model=built, settings=made), {})
    config = json.loads((tmp_path / "old" / "config.json").read_text())
    config["settings"]["model"]["tie"] = "all"  # as it was written when the output was untied without a word
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    again = load_model(tmp_path / "old")
    assert again.settings.model.tie == "inputs"
    exactly(again.model.output.table.weight, built.output.table.weight)


def test_a_model_comes_back_as_it_was(model, tmp_path):
    one = load_model(model)
    save_model(tmp_path / "again", one, {"bleu": 1.5})
    two = load_model(tmp_path / "again")
    assert two.settings == one.settings
    assert two.tokenizer.models == one.tokenizer.models
    for name, tensor in one.model.state_dict().items():
        exactly(two.model.state_dict()[name], tensor)
    assert describe(tmp_path / "again")["scores"] == {"bleu": 1.5}
    assert not two.model.training


def test_opening_a_model_draws_no_random_numbers_and_leaves_none_undefined(model):
    before, first = torch.get_rng_state(), load_model(model).model.state_dict()
    exactly(torch.get_rng_state(), before)
    for name, tensor in load_model(model).model.state_dict().items():
        exactly(tensor, first[name])


@pytest.mark.parametrize(
    "settings", [ModelSettings(), ModelSettings(family="recurrent", position=PartSettings("learned"))]
)
def test_what_is_drawn_is_what_is_saved(settings):
    """All that a new model draws is read again later: nothing stays as memory happened to be."""
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 6, "n_heads": 1, "d_ff": 5}
    marks = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        made = build_model(replace(settings, **sizes), (7, 7))
        saved = {id(tensor) for tensor in made.state_dict(keep_vars=True).values()}
        marks.append([tensor for tensor in made.buffers() if id(tensor) not in saved])
    for one, other in zip(*marks, strict=True):
        exactly(one, other)


@pytest.mark.parametrize("state_norm", ["none", "layer"])
def test_a_recurrent_model_comes_back_with_its_norm_and_an_older_one_without(model, tmp_path, state_norm):
    one = load_model(model)
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 6, "n_heads": 1, "position": PartSettings("none")}
    settings = ModelSettings(family="recurrent", tie=one.settings.model.tie, state_norm=state_norm, **sizes)
    made = build_model(settings, (one.tokenizer.vocab_size("src"), one.tokenizer.vocab_size("tgt"))).eval()
    save_model(tmp_path / "m", replace(one, settings=replace(one.settings, model=settings), model=made), {})
    if state_norm == "none":  # as before there was the setting
        config = json.loads((tmp_path / "m" / "config.json").read_text())
        del config["settings"]["model"]["state_norm"]
        (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    two = load_model(tmp_path / "m")
    assert two.settings.model == settings
    batch = make_batch([[4, 5, 6]], [[5, 6]])
    with torch.no_grad():
        exactly(two.model(batch), made(batch))
    assert describe(tmp_path / "m")["settings"]["model"]["state_norm"] == state_norm


def test_nothing_in_a_run_is_pickled(trained):
    endings = {path.suffix for path in trained.rglob("*") if path.is_file() and "tensorboard" not in path.parts}
    assert endings <= {".safetensors", ".json", ".jsonl", ".model", ".txt", ".tsv", ".bin", ".offsets", ".png"}
    assert sorted(path.name for path in (trained / "model").iterdir()) == sorted(
        [*FILES, "scores.json", "checksums.json"]
    )


def test_a_moved_model_works_without_what_it_was_made_from(trained, tmp_path, monkeypatch):
    shutil.copytree(trained / "model", tmp_path / "elsewhere" / "mine")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert regard.load("mine").translate("a b c") == regard.load(trained).translate("a b c")
    told = "".join((tmp_path / "elsewhere" / "mine" / name).read_text() for name in ("config.json", "scores.json"))
    assert str(trained) + "/" not in told  # the sources are named as they were given, the run's folder nowhere


def test_shared_tables_are_saved_once(trained):
    checkpoint = load_model(trained)
    assert "tgt.table.weight" in checkpoint.model.state_dict()
    assert "tgt.table.weight" not in load_file(trained / "model" / "model.safetensors")
    assert set(unique_tensors(checkpoint.model)) == set(load_file(trained / "model" / "model.safetensors"))


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(model, name):
    (model / name).unlink()
    with pytest.raises(ValueError, match=f"{name}: (this file is missing|no such file)|{name}, or"):
        load_model(model)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("what", ["cut", "empty", "foreign"])
def test_a_truncated_or_foreign_file_is_named(model, name, what):
    whole = (model / name).read_bytes()
    (model / name).write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "foreign": os.urandom(2000)}[what])
    with pytest.raises(ValueError, match=rf"{model}/{name}: "):
        load_model(model)


def test_scores_may_be_missing_but_not_broken(model):
    (model / "scores.json").write_text('{"bleu": ')
    with pytest.raises(ValueError, match=r"scores.json: this is not a complete JSON file"):
        describe(model)
    (model / "scores.json").unlink()
    assert describe(model)["scores"] == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "must be a JSON object, got list"),
        ({}, "must hold a table of settings, got NoneType"),
        ({"settings": 5}, "must hold a table of settings, got int"),
        ({"settings": {"modle": {}}}, "unknown setting 'modle': did you mean 'model'"),
        ({"settings": {"model": {"d_model": 15}}}, "d_model must be divisible by n_heads, got 15 and 8"),
    ],
)
def test_settings_of_another_kind_are_named(model, content, message):
    (model / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"config.json: .*{message}"):
        load_model(model)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.model"])
def test_one_flipped_bit_is_found(model, name):
    content = bytearray((model / name).read_bytes())
    content[-5] ^= 1
    (model / name).write_bytes(content)
    for read in (load_model, regard.load, describe):
        with pytest.raises(ValueError, match=f"{model / name}: "):
            read(model)


def test_weights_of_another_model_are_named(model):
    path = model / "model.safetensors"
    tensors = load_file(path)
    name, tensor = next(iter(tensors.items()))
    (model / "checksums.json").unlink()  # the change is meant
    save_file({**tensors, name: torch.zeros(3, 2)}, path)
    with pytest.raises(ValueError, match=rf"{name} is \(3, 2\) instead of \({tensor.shape[0]},"):
        load_model(model)
    save_file({"other": tensor}, path)
    with pytest.raises(ValueError, match=r"unknown \['other'\]"):
        load_model(model)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path}/none: there is no such model folder"):
        load_model(tmp_path / "none")
    with pytest.raises(ValueError, match=r"config.json: this file is missing"):
        load_model(tmp_path)


def test_settings_come_back_as_they_were(trained):
    table = settings_table(load_model(trained).settings)
    assert parse_settings(Settings, json.loads(json.dumps(table))) == load_model(trained).settings
    assert parse_settings(Settings, settings_table(Settings())) == Settings()


def test_a_save_that_fails_leaves_the_old_model(model, monkeypatch):
    checkpoint = load_model(model)
    before = {path.name: path.read_bytes() for path in model.iterdir()}

    def half(tensors, path, notes):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(regard.checkpoint.weights, "save_file", half)
    with pytest.raises(OSError, match="No space left"):
        save_model(model, checkpoint, {})
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
    assert [path.name for path in model.parent.iterdir()] == ["model"]


def test_a_model_that_was_moved_aside_is_found(model):
    shutil.move(model, model.with_name(".model.regard-0123456789abcdef.old"))
    assert (
        model_folder(model.parent).name == ".model.regard-0123456789abcdef.old"
    )  # a process was killed between two renames
    checkpoint = load_model(model.parent)
    save_model(model, checkpoint, {"step": 2})
    assert [path.name for path in model.parent.iterdir()] == ["model"]
    assert read_json(model / "scores.json") == {"step": 2}


def save_for_ever(folder, began, checkpoint):
    began.touch()
    while True:
        save_model(folder, checkpoint, {})


def test_kill_9_while_a_large_model_is_written_leaves_a_whole_one(model, tmp_path):
    one = load_model(model)
    made = replace(one.settings, model=replace(one.settings.model, d_model=256, d_ff=2048, n_decoder_layers=4))
    size = one.tokenizer.vocab_size("src")
    large = replace(one, model=build_model(made.model, (size, size)), settings=made)
    for n in range(10):
        began = tmp_path / f"began-{n}"
        writer = start(save_for_ever, model, began, large)
        while not began.exists():
            assert writer.is_alive(), "the process that writes has ended"
            time.sleep(0.001)
        time.sleep(0.011 * (n + 1))
        writer.kill()
        writer.join()
        load_model(model)
