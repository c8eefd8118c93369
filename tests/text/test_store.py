"""Stores of ids: what goes in comes out, and damage is noticed."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text import store as module
from regard.text.store import IdStore, write_store
from regard.text.variants import Cuts


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


@settings(max_examples=40)
@given(data=st.data())
def test_variants_stand_behind_their_plain_segmentation(tmp_path_factory, data):
    n_pairs, n_variants = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 3))
    cut = st.lists(st.integers(4, 99), max_size=6)
    all_cuts = st.lists(
        st.lists(cut, min_size=1 + n_variants, max_size=1 + n_variants), min_size=n_pairs, max_size=n_pairs
    )
    sides = {side: data.draw(all_cuts) for side in ("src", "tgt")}
    folder = tmp_path_factory.mktemp("store") / "train"
    with write_store(folder, 100, n_variants, (1.0, 2.0)) as writer:
        for begin in range(0, n_pairs, 2):  # blocks of two
            blocks = [cuts_of(cuts[begin : begin + 2]) for cuts in sides.values()]
            writer.extend(*blocks, [k % 2 for k in range(begin, min(begin + 2, n_pairs))])
    store = IdStore(folder)
    assert (len(store), store.origins.tolist()) == (n_pairs, [k % 2 for k in range(n_pairs)])
    assert [store.src(i).tolist() for i in range(n_pairs)] == [cuts[0] for cuts in sides["src"]]
    assert store.lengths().tolist() == [[len(a[0]), len(b[0])] for a, b in zip(*sides.values(), strict=True)]
    epoch = store.epoch(3, 7)
    pairs = np.array(data.draw(st.permutations(epoch.tolist())), dtype=np.int64)
    variants = np.array(
        data.draw(st.lists(st.tuples(*[st.integers(0, n_variants)] * 2), min_size=len(pairs), max_size=len(pairs)))
    )
    variants = variants.reshape(len(pairs), 2).astype(np.int64)
    head, tail = data.draw(st.sampled_from([((), ()), ((2,), ()), ((), (3,)), ((2,), (3,)), ((1, 2), (3, 1))]))
    for k, (side, cuts) in enumerate(sides.items()):
        chosen = [[*head, *cuts[pair][variant], *tail] for pair, variant in zip(pairs, variants[:, k], strict=True)]
        ids, lengths = store.rows(side, pairs, variants[:, k], 11, head, tail)
        assert ids.tolist() == [row + [0] * (11 - len(row)) for row in chosen]
        assert (ids.shape, ids.dtype) == ((len(pairs), 11), np.dtype(np.int64))
        assert lengths.tolist() == [len(row) for row in chosen]
        extra = len(head) + len(tail)
        assert store.lengths(pairs, variants)[:, k].tolist() == [len(row) - extra for row in chosen]


def cuts_of(sentences) -> Cuts:
    """Lays out the segmentations of some sentences."""
    ids = np.array([i for cuts in sentences for cut in cuts for i in cut], dtype=np.int64)
    return Cuts(ids, np.array([[len(cut) for cut in cuts] for cuts in sentences]))


def test_an_epoch_sees_its_pairs_in_segmentations_of_the_store(tmp_path):
    with write_store(tmp_path / "train", 100, 2, (3.0,)) as writer:
        block = cuts_of([[[9], [4, 5], [6, 7, 8]]] * 5)
        writer.extend(block, block, [0] * 5)
    store = IdStore(tmp_path / "train")
    pairs = store.epoch(1, 4)
    assert pairs.tolist() == [i for i in range(5) for _ in range(3)]
    variants = store.draw(1, 4, pairs)
    assert set(variants.ravel().tolist()) == {1, 2}
    assert (store.lengths(pairs, variants) == variants + 1).all()
    assert store.draw(1, 4).tolist() == variants[::3].tolist(), "of each pair as it first comes"


def test_a_row_that_does_not_fit_is_named(tmp_path):
    store = write(tmp_path / "train", [([1, 2], [3])], 9)
    with pytest.raises(ValueError, match="a sentence of 4 ids does not fit a batch 3 wide"):
        store.rows("src", np.array([0]), np.array([0]), 3, (2,), (3,))


def test_origins_that_do_not_belong_are_noticed(tmp_path):
    folder = tmp_path / "train"
    write(folder, [([1], [2]), ([3], [4])], 9)
    for origins in (b"\0\0", b"\0\0\1\0"):
        (folder / "origins.bin").write_bytes(origins)
        with pytest.raises(ValueError, match=f"a source for each of 2 pairs, got {len(origins) // 2} of 1 sources"):
            IdStore(folder)


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
        head, said = (
            json.dumps({"n_pairs": 1, "width": "<i8", "n_variants": 0, "weights": [1]}),
            "must be one of <u2, <u4, got '<i8'",
        )
    (folder / "store.json").write_text(head)
    with pytest.raises(ValueError, match=said):
        IdStore(folder)
