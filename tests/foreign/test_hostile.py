"""Folders that lie or do harm: nothing in them is run, and each is refused before memory is taken for what it says."""

import json
import pickle
import shutil
import zipfile

import pytest
import torch
from safetensors.torch import load_file, save_file

import regard
from regard.data.pieces import PieceTable, parse_table
from regard.foreign import fetch, is_foreign, own_folder
from regard.foreign import folder as foreign_folder
from regard.foreign.folder import stored_numbers
from regard.foreign.incoming import read_incoming, write_incoming
from tests.foreign.theirs import marian

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return marian(tmp_path_factory.mktemp("whole") / "opus-mt-en-fr").folder


@pytest.fixture
def theirs(whole, tmp_path):
    """A copy to damage."""
    return shutil.copytree(whole, tmp_path / "opus-mt-en-fr")


def change(folder, name="config.json", **values):
    path = folder / name
    table = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**table, **values}), encoding="utf-8")


def as_pickle(folder, change=lambda tensors: tensors):
    tensors = change(load_file(folder / WEIGHTS))
    (folder / WEIGHTS).unlink()
    torch.save(tensors, folder / "pytorch_model.bin")


def test_tensors_of_a_bin_file_are_those_of_safetensors(theirs, whole):
    as_pickle(theirs)
    expected, found = stored_numbers(whole), stored_numbers(theirs)
    assert expected.keys() == found.keys()
    assert all((expected[name].floats() == found[name].floats()).all() for name in expected)
    one, other = (read_incoming(each).arrays for each in (theirs, whole))
    assert all((one[name] == other[name]).all() for name in other)


class Harm:
    def __reduce__(self):
        return exec, ("raise SystemExit('unpickled')",)


@pytest.mark.parametrize("zipped", [True, False])
def test_what_is_pickled_besides_tensors_is_never_unpickled(theirs, zipped):
    as_pickle(theirs)
    path = theirs / "pytorch_model.bin"
    if zipped:
        torch.save({"model.shared.weight": torch.zeros(2, 2), "harm": Harm()}, path)
    else:
        path.write_bytes(pickle.dumps({"harm": Harm()}))
    with pytest.raises(ValueError, match=r"pytorch_model\.bin: (weights must be tensors alone|this is not a complete)"):
        read_incoming(theirs)


def test_a_tensor_without_memory_for_its_numbers_is_refused(theirs):
    as_pickle(theirs, lambda tensors: {**tensors, "final_logits_bias": torch.zeros(1).expand(1, 1 << 40)})
    with pytest.raises(ValueError, match=r"must have memory for its numbers, got final_logits_bias of"):
        read_incoming(theirs)


def test_a_file_that_unpacks_to_more_than_the_memory_is_refused(theirs, monkeypatch):
    as_pickle(theirs)
    path = theirs / "pytorch_model.bin"
    size = path.stat().st_size
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(1 << 22))
    monkeypatch.setattr(foreign_folder, "memory_size", lambda: size + (1 << 20))
    with pytest.raises(ValueError, match=r"pytorch_model\.bin: a model must fit into this machine's memory, got"):
        read_incoming(theirs)


def test_a_model_that_does_not_fit_the_memory_is_refused_before_any_number_is_read(theirs, monkeypatch):
    monkeypatch.setattr(foreign_folder, "memory_size", lambda: 1000)
    with pytest.raises(ValueError, match=r"a model must fit into this machine's memory, got .* of 0\.0 GiB"):
        read_incoming(theirs)


SIZES = {
    "vocab_size": (1 << 39, "model.shared.weight is"),
    "d_model": (20_000_000, r"is \(\d+, 20\) instead of"),
    "encoder_layers": (7, r"missing \['model.encoder.layers.2"),
    "decoder_layers": (1, r"unknown \['model.decoder.layers.1"),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_compared_with_the_arrays_before_anything_is_made(theirs, name):
    size, said = SIZES[name]
    change(theirs, **{name: size})
    with pytest.raises(ValueError, match=said):
        read_incoming(theirs)


@pytest.mark.parametrize("place", ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", "..", 3])
def test_an_index_names_files_of_its_folder_alone(theirs, place):
    (theirs / WEIGHTS).rename(theirs.parent / "outside.safetensors")
    index = {"weight_map": {"model.shared.weight": place}}
    (theirs / f"{WEIGHTS}.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"index\.json: weight_map must name (files|a file) of this folder"):
        read_incoming(theirs)


def test_shards_are_read_together(theirs, whole):
    tensors = load_file(theirs / WEIGHTS)
    (theirs / WEIGHTS).unlink()
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[:9], "model-2.safetensors": names[9:]}
    for file, some in parts.items():
        save_file({name: tensors[name] for name in some}, theirs / file)
    places = {name: file for file, some in parts.items() for name in some}
    (theirs / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": places}))
    one, other = (read_incoming(each).arrays for each in (theirs, whole))
    assert all((one[name] == other[name]).all() for name in other)
    (theirs / "model-2.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model-2\.safetensors: this file is missing"):
        read_incoming(theirs)


CONFIGS = [
    ({"model_type": "t5"}, "unknown model_type 't5': .*valid are marian"),
    ({"model_type": "mbert"}, "unknown model_type 'mbert': did you mean 'mbart'"),
    ({"model_type": ["marian"]}, "unknown model_type"),
    ({"activation_function": "gelu_new"}, "unknown activation_function 'gelu_new': did you mean 'gelu'"),
    ({"d_model": "20"}, "d_model must be a whole number from 0 on, got '20'"),
    ({"d_model": -4}, "d_model must be a whole number from 0 on, got -4"),
    (
        {"encoder_attention_heads": 3, "decoder_attention_heads": 3},
        "d_model must be divisible by n_heads, got 20 and 3",
    ),
    ({"encoder_ffn_dim": 8}, "ffn_dim of encoder and decoder must be equal, got 8 and 28"),
    ({"scale_embedding": "yes"}, "scale_embedding must be true or false, got 'yes'"),
    ({"eos_token_id": 10**9}, "eos_token_id must be an id in 0 … "),
    ({"encoder_layers": 0}, "sizes must be 1 or more"),
]


@pytest.mark.parametrize(("values", "said"), CONFIGS, ids=str)
def test_a_config_that_is_not_supported_is_refused_by_name(theirs, values, said):
    change(theirs, **values)
    (theirs / "generation_config.json").unlink()
    with pytest.raises(ValueError, match=said):
        read_incoming(theirs)


def test_code_that_a_folder_brings_is_not_run(theirs, tmp_path):
    (theirs / "modeling_marian.py").write_text("raise SystemExit('was run')")
    change(theirs, auto_map={"AutoModelForSeq2SeqLM": "modeling_marian.Model"}, trust_remote_code=True)
    change(theirs, "tokenizer_config.json", auto_map={"AutoTokenizer": ["modeling_marian.Tok", None]})
    write_incoming(read_incoming(theirs), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.py"))


def test_a_search_that_is_none_is_refused(theirs):
    change(theirs, "generation_config.json", num_beams="5")
    with pytest.raises(ValueError, match="must have a beam of 1 or more and a penalty, got num_beams '5'"):
        read_incoming(theirs)
    change(theirs, "generation_config.json", num_beams=5, bad_words_ids=[["x"]])
    with pytest.raises(ValueError, match=r"must hold ids, got \['x'\]"):
        read_incoming(theirs)


def test_what_our_search_does_not_do_is_named(theirs):
    change(theirs, "generation_config.json", no_repeat_ngram_size=3, bad_words_ids=[[1, 2]], min_length=0)
    assert read_incoming(theirs).notes == ["no_repeat_ngram_size 3", "bad_words_ids of several tokens, [[1, 2]]"]


def test_tables_of_pieces_are_checked(theirs):
    good = json.loads((theirs / "vocab.json").read_text(encoding="utf-8"))
    for values, said in (
        ({"x": 10**6}, r"ids must lie in 0 … \d+, as config.json says, got 1000000 for 'x'"),
        ({"x": "1"}, "got '1' for 'x'"),
        ({"x": 3}, "each id must have one piece, got .* and 'x' for 3"),
    ):
        (theirs / "vocab.json").write_text(json.dumps({**good, **values}), encoding="utf-8")
        with pytest.raises(ValueError, match=said):
            read_incoming(theirs)
    (theirs / "vocab.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"vocab\.json: this must be a table"):
        read_incoming(theirs)


def test_missing_and_damaged_files_are_named(theirs, tmp_path):
    (theirs / "source.spm").write_bytes(b"no model")
    with pytest.raises(ValueError, match=r"source\.spm: a SentencePiece model must be complete, got 8 other bytes"):
        read_incoming(theirs)
    (theirs / "source.spm").unlink()
    with pytest.raises(ValueError, match=r"a tokenizer must be there as source\.spm, target\.spm and vocab\.json"):
        read_incoming(theirs)
    (theirs / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json: a tokenizer\.json must be complete, got"):
        read_incoming(theirs)
    (theirs / WEIGHTS).write_bytes(b"\xff" * 40)
    with pytest.raises(ValueError, match=r"model\.safetensors: this is not a complete safetensors file"):
        read_incoming(theirs)
    (theirs / WEIGHTS).unlink()
    with pytest.raises(ValueError, match=r"got neither model\.safetensors nor pytorch_model\.bin"):
        read_incoming(theirs)
    (theirs / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="this must be a whole model, got an adapter"):
        read_incoming(theirs)
    with pytest.raises(ValueError, match=r"must have a config\.json, got a folder without"):
        read_incoming(tmp_path)


def test_our_own_table_of_pieces_is_checked():
    table = PieceTable(["<pad>", "<unk>", "<s>", "</s>", "a"], {"src": b"x"}, silent=[1])
    assert parse_table(table.dump()).dump() == table.dump()
    for content, said in (
        (table.dump()[:-3], "must be a complete JSON file"),
        (PieceTable(["a"], {"src": b"x"}, silent=[7]).dump(), "ids must lie below the number of pieces, 1, got"),
        (b'{"pieces":[1],"cutters":{"src":"eA=="}}', "(ids|pieces)"),
        (b'{"pieces":["a"],"cutters":{"src":"!"}}', "must be a complete JSON file"),
        (b'{"pieces":["a"],"cutters":{},"other":1}', "must be a complete JSON file"),
    ):
        with pytest.raises(ValueError, match=said):
            parse_table(content)


def test_a_cache_that_cannot_be_written_is_named(theirs, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ValueError, match=r"a copy of a model in our form needs a cache, got .*: name another with"):
        own_folder(theirs)


def test_a_name_on_the_hub_is_fetched_where_there_is_a_network(theirs, monkeypatch, tmp_path):
    """Here is none: what the package says is told, and a folder that it has fetched is taken over."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def offline(name, allow_patterns):
        raise ConnectionError(f"no route to {name}")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(ValueError, match=r"hf:a/b-en-de cannot be fetched \(no route to a/b-en-de\): fetch its folder"):
        regard.load("hf:a/b-en-de")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, allow_patterns: str(theirs))
    assert fetch("hf:a/opus-mt-en-fr") == theirs
    assert regard.load("hf:a/opus-mt-en-fr").tgt_lang == "fr"
    with pytest.raises(ValueError, match="is named hf:owner/name, got 'hf:x'"):
        fetch("hf:x")


def test_only_their_folders_are_foreign(theirs, tmp_path):
    assert is_foreign(theirs) and not is_foreign(tmp_path / "none")
    write_incoming(read_incoming(theirs), tmp_path / "ours")
    assert not is_foreign(tmp_path / "ours")
