"""Epochs: each pair as often as its source weighs, in segmentations that do not recur before all were seen.

Stores of ids: what goes in comes out, and damage is noticed.
Windows of a running text: all of it in each epoch, from another place each time.
"""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import store as module
from regard.data.store import IdStore, Windows, draw_pairs, draw_variants, open_store, write_store, write_window_width
from regard.data.subword_sampling import Segmentations
from regard.padding import BOS, EOS

WEIGHTS = st.lists(st.floats(0.05, 4), min_size=1, max_size=3)


def origins(n, n_sources, seed=1):
    return np.random.default_rng(seed).integers(n_sources, size=n).astype(np.uint16)


@given(n=st.integers(0, 30), weights=WEIGHTS, seed=st.integers(0, 9))
def test_pairs_are_seen_as_often_as_their_source_weighs(n, weights, seed):
    sources, seen = origins(n, len(weights)), np.zeros(n)
    for epoch in range(12):
        pairs = draw_pairs(sources, weights, seed, epoch)
        assert (np.diff(pairs) >= 0).all()
        times = np.bincount(pairs, minlength=n)
        wanted = np.array(weights)[sources]
        assert ((times >= np.floor(wanted)) & (times <= np.floor(wanted) + 1)).all()
        seen += times
        assert (abs(seen - wanted * (epoch + 1)) < 1).all(), "evenly, at every time"
        assert draw_pairs(sources, weights, seed, epoch).tolist() == pairs.tolist()


def test_which_pairs_come_is_up_to_chance():
    sources = origins(1000, 1)
    first, other = (set(draw_pairs(sources, [0.5], seed, 0)) for seed in (1, 2))
    assert first != other
    assert 400 < len(first) < 600
    assert first | set(draw_pairs(sources, [0.5], 1, 1)) == set(range(1000))


def test_equal_weights_change_nothing():
    for epoch in (0, 5):
        assert draw_pairs(origins(50, 3), [1.0, 1.0, 1.0], 3, epoch).tolist() == list(range(50))


@pytest.mark.parametrize("weights", [[1.0], [2.0], [0.4, 1.7]])
@pytest.mark.parametrize("n_variants", [1, 3, 8])
def test_no_segmentation_recurs_before_all_were_seen(weights, n_variants):
    sources, seed = origins(40, len(weights)), 5
    seen = [[] for _ in range(40)]
    for epoch in range(n_variants**2 * 3):
        pairs = draw_pairs(sources, weights, seed, epoch)
        drawn = draw_variants(pairs, sources, weights, n_variants, seed, epoch)
        assert drawn.shape == (len(pairs), 2)
        for pair, cuts in zip(pairs.tolist(), drawn.tolist(), strict=True):
            seen[pair].append(tuple(cuts))
    for cuts in seen:
        for begin in range(0, len(cuts) - n_variants + 1, n_variants):
            for side in (0, 1):
                some = [cut[side] for cut in cuts[begin : begin + n_variants]]
                assert sorted(some) == list(range(1, n_variants + 1))
        every = cuts[: n_variants**2]
        assert len(set(every)) == len(every), "source and target meet in all combinations"


def test_pairs_begin_anywhere_and_sides_apart():
    drawn = draw_variants(np.arange(800), origins(800, 1), [1.0], 8, 3, 0)
    counts = np.bincount(drawn[:, 0] * 9 + drawn[:, 1])
    assert np.count_nonzero(counts) == 64
    assert draw_variants(np.arange(800), origins(800, 1), [1.0], 8, 4, 0).tolist() != drawn.tolist()


def test_without_variants_all_is_plain():
    assert draw_variants(np.array([3, 3, 4]), origins(9, 1), [1.0], 0, 3, 0).tolist() == [[0, 0]] * 3
    assert draw_variants(np.array([], dtype=np.int64), origins(9, 1), [1.0], 4, 3, 0).shape == (0, 2)


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
    with pytest.raises(IndexError, match=f"a pair must lie in 0 … 0, got {i}"):
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
    epoch = store.epoch_pairs(3, 7)
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


def cuts_of(sentences) -> Segmentations:
    """Lay out the segmentations of some sentences."""
    ids = np.array([i for cuts in sentences for cut in cuts for i in cut], dtype=np.int64)
    return Segmentations(ids, np.array([[len(cut) for cut in cuts] for cuts in sentences]))


def test_an_epoch_sees_its_pairs_in_segmentations_of_the_store(tmp_path):
    with write_store(tmp_path / "train", 100, 2, (3.0,)) as writer:
        block = cuts_of([[[9], [4, 5], [6, 7, 8]]] * 5)
        writer.extend(block, block, [0] * 5)
    store = IdStore(tmp_path / "train")
    pairs = store.epoch_pairs(1, 4)
    assert pairs.tolist() == [i for i in range(5) for _ in range(3)]
    variants = store.draw_variants(1, 4, pairs)
    assert set(variants.ravel().tolist()) == {1, 2}
    assert (store.lengths(pairs, variants) == variants + 1).all()
    assert store.draw_variants(1, 4).tolist() == variants[::3].tolist(), "of each pair as it first comes"


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
    with pytest.raises(ValueError, match=f"{name}: the file must exist and be complete"):
        IdStore(folder)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"{name}: the file must exist and be complete"):
        IdStore(folder)


@pytest.mark.parametrize(
    ("head", "message"),
    [("{", "readable store.json, got JSONDecodeError"), ("{}", "got KeyError"), ("[]", "got TypeError"), ("<i8", "")],
)
def test_a_foreign_head_is_noticed(tmp_path, head, message):
    folder = tmp_path / "train"
    write(folder, [([1], [2])], 9)
    if head == "<i8":
        head, message = (
            json.dumps({"n_pairs": 1, "width": "<i8", "n_variants": 0, "weights": [1]}),
            "must be one of <u2, <u4, got '<i8'",
        )
    (folder / "store.json").write_text(head)
    with pytest.raises(ValueError, match=message):
        IdStore(folder)


def make_windows(folder, n, width):
    """Store the numbers from 4 on, in uneven portions, so that an id tells its place."""
    with write_store(folder, 5000) as store:
        for at in range(0, n, 37):
            store.add([], list(range(4 + at, 4 + min(at + 37, n))))
    write_window_width(folder, width)
    return Windows(folder)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return make_windows(tmp_path_factory.mktemp("text") / "train", 1000, 13)


@given(st.integers(0, 99), st.integers(0, 30))
def test_an_epoch_lays_windows_side_by_side(windows, seed, epoch):
    starts = windows.epoch_pairs(seed, epoch)
    assert len(starts) == len(windows) == (1000 - 12) // 13
    assert set(np.diff(starts).tolist()) == {13} and 0 <= starts[0] < 13 and starts[-1] + 13 <= 1000
    assert np.array_equal(starts, windows.epoch_pairs(seed, epoch)), "the same for the same seed and number"


def test_each_offset_comes_and_depends_on_seed_and_epoch(windows):
    first = [int(windows.epoch_pairs(7, epoch)[0]) for epoch in range(200)]
    assert set(first) == set(range(13))
    assert first != [int(windows.epoch_pairs(8, epoch)[0]) for epoch in range(200)]


def test_rows_are_what_stands_there(windows):
    starts = np.array([5, 200, 987])
    ids, lengths = windows.rows("tgt", starts, np.zeros(3, np.int64), 16, (BOS,), (EOS,))
    assert ids.tolist() == [[BOS, *range(4 + s, 4 + s + 13), 0, 0] for s in starts.tolist()]
    assert lengths.tolist() == [14] * 3
    assert windows.lengths(starts).tolist() == [[0, 12]] * 3, "the last piece counts as the end"
    ids, lengths = windows.rows("src", starts, np.zeros(3, np.int64), 2, (), (EOS,))
    assert ids.tolist() == [[EOS, 0]] * 3 and lengths.tolist() == [1] * 3
    assert windows.tgt(5).tolist() == list(range(9, 22)) and len(windows.src(5)) == 0
    with pytest.raises(ValueError, match="a window of 14 ids does not fit a batch 13 wide"):
        windows.rows("tgt", starts, np.zeros(3, np.int64), 13, (BOS,), (EOS,))


def test_a_store_says_whether_it_is_one_of_windows(windows, tmp_path):
    with write_store(tmp_path / "pairs", 10) as store:
        store.add([4], [5])
    assert isinstance(open_store(tmp_path / "pairs"), IdStore)
    write_window_width(tmp_path / "pairs", 2)
    result = open_store(tmp_path / "pairs")
    assert isinstance(result, Windows) and len(result) == 0
    (tmp_path / "pairs" / "window.json").write_text("{}")
    with pytest.raises(ValueError, match=r"must have a readable window.json, got KeyError\('width'\)"):
        open_store(tmp_path / "pairs")
