"""Stores of ids: what goes in comes out, and damage is noticed."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text import store as module
from regard.text.store import IdStore, write_store


def write(folder, pairs, vocab_size):
    with write_store(folder, vocab_size) as store:
        for src, tgt in pairs:
            store.add(src, tgt)
    return IdStore(folder)


@pytest.mark.parametrize(("vocab_size", "width"), [(2**16, "<u2"), (2**16 + 1, "<u4")])
@pytest.mark.parametrize("buffer", [1, 5, 1000])
@settings(max_examples=25)
@given(data=st.data())
def test_pairs_come_back(tmp_path_factory, vocab_size, width, buffer, data):
    ids = st.lists(st.integers(0, vocab_size - 1), max_size=7)
    pairs = data.draw(st.lists(st.tuples(ids, ids), max_size=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BUFFER", buffer)
        store = write(tmp_path_factory.mktemp("store") / "train", pairs, vocab_size)
    assert len(store) == len(pairs)
    assert [(store.src(i).tolist(), store.tgt(i).tolist()) for i in range(len(store))] == pairs
    assert store.lengths().tolist() == [[len(src), len(tgt)] for src, tgt in pairs]
    assert store.lengths().shape == (len(pairs), 2)
    assert store.ids["src"].dtype == np.dtype(width)


def test_a_sentence_is_a_view_that_cannot_be_written(tmp_path):
    store = write(tmp_path / "train", [([1, 2], [3])], 9)
    assert store.src(0).base is not None
    with pytest.raises(ValueError, match="read-only"):
        store.src(0)[0] = 5


@pytest.mark.parametrize("i", [-1, 1])
def test_a_pair_that_is_not_there_is_named(tmp_path, i):
    store = write(tmp_path / "train", [([1], [2])], 9)
    with pytest.raises(IndexError, match=f"a store of 1 pairs has no pair {i}"):
        store.tgt(i)


def test_a_store_that_was_not_finished_is_not_there(tmp_path):
    with pytest.raises(KeyboardInterrupt), write_store(tmp_path / "train", 9) as store:
        store.add([1], [2])
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"train: a store must have a readable store\.json, got FileNotFound"):
        IdStore(tmp_path / "train")


@pytest.mark.parametrize("name", ["src.bin", "tgt.bin", "src.offsets", "tgt.offsets"])
def test_a_truncated_or_missing_file_is_noticed(tmp_path, name):
    folder = tmp_path / "train"
    write(folder, [([1, 2, 3], [4, 5, 6])], 9)
    whole = (folder / name).read_bytes()
    item = 8 if name.endswith("offsets") else 2
    (folder / name).write_bytes(whole[:-item])
    with pytest.raises(ValueError, match=f"train: the store must have 1 {name[:3]} sentences, got"):
        IdStore(folder)
    (folder / name).write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=f"{name}: the file must be there and whole"):
        IdStore(folder)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"{name}: the file must be there and whole"):
        IdStore(folder)


@pytest.mark.parametrize(
    ("head", "said"),
    [("{", "readable store.json, got JSONDecodeError"), ("{}", "got KeyError"), ("[]", "got TypeError"), ("<i8", "")],
)
def test_a_foreign_head_is_noticed(tmp_path, head, said):
    folder = tmp_path / "train"
    write(folder, [([1], [2])], 9)
    if head == "<i8":
        head, said = json.dumps({"n_pairs": 1, "width": "<i8"}), "must be one of <u2, <u4, got '<i8'"
    (folder / "store.json").write_text(head)
    with pytest.raises(ValueError, match=said):
        IdStore(folder)
