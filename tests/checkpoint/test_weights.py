"""Weights in one file or in shards: what comes back, how large a file may be, and what is wrong where it is not so."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.checkpoint import describe, model_folder, read_scores
from regard.checkpoint.weights import Form, copy_model, load_model, read_weights, unique_tensors, write_weights
from regard.zoo import make_card
from tests.parts import exactly
from tests.train.tiny import trained_once

INDEX = "model.safetensors.index.json"
KIB = 1 / 1024


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    return trained_once(tmp_path_factory)


@pytest.fixture
def sharded(trained, tmp_path):
    copy_model(trained, tmp_path / "sharded", Form("float32", 8 * KIB))
    return tmp_path / "sharded"


def shards(folder):
    return sorted(folder.glob("model-*.safetensors"))


def test_shards_are_as_small_as_told_and_hold_each_tensor_once(trained, sharded):
    tensors = load_file(trained / "model" / "model.safetensors")
    paths = shards(sharded)
    assert len(paths) >= 3
    assert [path.name for path in paths] == [
        f"model-{n:05d}-of-{len(paths):05d}.safetensors" for n in range(1, len(paths) + 1)
    ]
    assert all(path.stat().st_size <= 8 * 1024 for path in paths)
    found = [(name, tensor) for path in paths for name, tensor in load_file(path).items()]
    assert len(found) == len(tensors)
    for name, tensor in found:
        exactly(tensor, tensors[name])
    index = json.loads((sharded / INDEX).read_text())
    assert index["weight_map"] == {name: path.name for path in paths for name in load_file(path)}
    assert index["metadata"]["total_size"] == sum(tensor.numel() * 4 for tensor in tensors.values())


@pytest.mark.parametrize(
    "form", [Form(), Form("int8"), Form("float32", 8 * KIB), Form("int8", 4 * KIB), Form("bfloat16", 5.0)]
)
def test_a_model_translates_from_every_form(trained, tmp_path, form):
    import regard

    copy_model(trained, tmp_path / "copy", form)
    found = regard.load(tmp_path / "copy").translate(["a b c", "d e"])
    assert [bool(one.text) for one in found] == [True, True]
    if form.precision == "float32":
        assert found == regard.load(trained).translate(["a b c", "d e"])


def test_a_copy_keeps_all_but_the_weights(trained, tmp_path):
    source = shutil.copytree(trained / "model", tmp_path / "source")
    (source / "card.md").write_text("# mine\n")
    copy_model(source, tmp_path / "copy", Form("int8", 4 * KIB))
    for name in ("tokenizer.model", "card.md"):
        assert (tmp_path / "copy" / name).read_bytes() == (source / name).read_bytes()
    assert not (tmp_path / "copy" / "model.safetensors").exists()
    old, new = (load_model(each).settings for each in (source, tmp_path / "copy"))
    assert replace(new, data=old.data, text=old.text) == old
    assert replace(new.data, train=old.data.train, test=old.data.test) == old.data


def test_a_copy_names_its_texts_without_the_folders_of_a_machine(trained, tmp_path):
    source = shutil.copytree(trained / "model", tmp_path / "source")
    config = json.loads((source / "config.json").read_text())
    config["settings"]["data"]["train"] = ["/home/me/corpora/mine/a.zh.gz,/home/me/corpora/mine/a.en.gz", "b.tsv"]
    config["settings"]["text"]["tokenizer"] = "/home/me/model"
    (source / "config.json").write_text(json.dumps(config))
    copy_model(source, tmp_path / "copy", Form())
    made = load_model(tmp_path / "copy").settings
    assert made.data.train == ("mine/a.zh.gz,mine/a.en.gz", "b.tsv")
    assert made.text.tokenizer is None


def test_a_model_tells_its_form(trained, tmp_path):
    copy_model(trained, tmp_path / "copy", Form("int8", 4 * KIB))
    found, before = describe(tmp_path / "copy"), describe(trained)
    assert (found["precision"], found["shards"]) == ("int8", len(shards(tmp_path / "copy")))
    assert found["bytes"] == sum(path.stat().st_size for path in shards(tmp_path / "copy"))
    assert found["parameters"] == before["parameters"]
    assert (before["precision"], before["shards"]) == ("float32", 1)


def test_the_same_model_in_shards_again_is_the_same_model(trained, sharded, tmp_path):
    """From 8 bits to 8 bits nothing is lost: a copy of a copy has the same bytes."""
    copy_model(trained, tmp_path / "one", Form("int8", 4 * KIB))
    copy_model(tmp_path / "one", tmp_path / "two", Form("int8", 4 * KIB))
    for one, two in zip(shards(tmp_path / "one"), shards(tmp_path / "two"), strict=True):
        first, second = load_file(one), load_file(two)
        for name, tensor in first.items():
            if tensor.dtype == torch.int8:
                exactly(second[name], tensor)
            else:
                torch.testing.assert_close(second[name], tensor, rtol=1e-6, atol=0)


def test_anybody_may_read_what_anybody_may_read(trained, sharded):
    for path in (*shards(sharded), trained / "model" / "model.safetensors"):
        assert path.stat().st_mode == (path.parent / "config.json").stat().st_mode


def test_a_tensor_larger_than_a_shard_is_named(trained, tmp_path):
    with pytest.raises(ValueError, match=r"must hold the largest tensor, .* MiB, got 0\.001 MiB: allow larger shards"):
        copy_model(trained, tmp_path / "copy", Form("float32", 0.001))
    assert not (tmp_path / "copy").exists()


def test_a_missing_shard_is_named(sharded):
    shards(sharded)[1].unlink()
    with pytest.raises(ValueError, match=f"{shards(sharded)[0].parent}/model-00002-of-.*: this file is missing"):
        load_model(sharded)


def test_a_truncated_shard_is_named(sharded):
    path = shards(sharded)[1]
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match=f"{path}: this is not a complete safetensors file"):
        load_model(sharded)


def test_a_shard_of_another_model_is_named_even_with_the_same_shapes(trained, sharded, tmp_path):
    other = unique_tensors(load_model(trained).model)
    (tmp_path / "other").mkdir()
    write_weights(tmp_path / "other", {name: tensor + 1 for name, tensor in other.items()}, Form("float32", 8 * KIB))
    path = shards(sharded)[1]
    shutil.copy(tmp_path / "other" / path.name, path)
    with pytest.raises(
        ValueError, match=rf"{path}: this shard is of another model .*another mark.*copy the folder again"
    ):
        load_model(sharded)


def test_a_shard_with_other_tensors_is_named(sharded):
    path = shards(sharded)[0]
    mark = json.loads((sharded / INDEX).read_text())["metadata"]["mark"]
    save_file({"stranger": torch.zeros(3)}, path, {"mark": mark})
    with pytest.raises(ValueError, match=rf"{path}: this shard is of another model .*"):
        load_model(sharded)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "weight_map must name a file of this folder for each tensor, got None"),
        ({"weight_map": {}}, "got {}"),
        ({"weight_map": {"a": "../elsewhere.safetensors"}}, r"a file of this folder for each tensor, got .*elsewhere"),
        ({"weight_map": {"a": 5}}, "got {'a': 5}"),
        ({"weight_map": {"a": "none.safetensors"}}, r"none.safetensors: this file is missing"),
    ],
)
def test_an_index_that_is_none_is_named(sharded, content, message):
    (sharded / INDEX).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        load_model(sharded)


def test_a_file_without_weights_is_named(tmp_path):
    save_file({}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.safetensors: a model must have weights, got a file without any"):
        read_weights(tmp_path)


def test_weights_of_another_model_in_shards_name_the_index(sharded):
    config = json.loads((sharded / "config.json").read_text())
    config["settings"]["model"]["d_ff"] = 8
    (sharded / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=rf"{INDEX}: these weights are of another model: .* instead of"):
        load_model(sharded)


def test_shards_of_a_run_are_found_as_its_model(trained, sharded, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copytree(sharded, run / "model")
    assert model_folder(run) == run / "model"
    assert load_model(run).settings.model == load_model(trained).settings.model


def test_scores_of_another_precision_say_so(trained, tmp_path):
    """They were measured with other weights; a second copy in the same precision changes nothing more."""
    before = read_scores(trained / "model")
    copy_model(trained, tmp_path / "same", Form())
    assert read_scores(tmp_path / "same") == before
    copy_model(trained, tmp_path / "small", Form("int8"))
    marked = {kind: {"precision": "float32", **before[kind]} for kind in ("test", "valid") if kind in before}
    assert marked and read_scores(tmp_path / "small") == {**before, **marked}
    copy_model(tmp_path / "small", tmp_path / "again", Form("int8"))
    assert read_scores(tmp_path / "again") == {**before, **marked}
    card = make_card("small", describe(tmp_path / "small"), "regard train")
    assert ", in float32" in card and ", in float32" not in make_card("same", describe(tmp_path / "same"), "")
