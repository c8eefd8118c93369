"""Windows of a running text: all of it in each epoch, from another place each time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import BOS, EOS
from regard.text.store import IdStore, write_store
from regard.text.windows import Windows, open_store, write_width


def make_windows(folder, n, width):
    """Stores the numbers from 4 on, in uneven portions, so that an id tells its place."""
    with write_store(folder, 5000) as store:
        for at in range(0, n, 37):
            store.add([], list(range(4 + at, 4 + min(at + 37, n))))
    write_width(folder, width)
    return Windows(folder)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return make_windows(tmp_path_factory.mktemp("text") / "train", 1000, 13)


@given(st.integers(0, 99), st.integers(0, 30))
def test_an_epoch_lays_windows_side_by_side(windows, seed, epoch):
    starts = windows.epoch(seed, epoch)
    assert len(starts) == len(windows) == (1000 - 12) // 13
    assert set(np.diff(starts).tolist()) == {13} and 0 <= starts[0] < 13 and starts[-1] + 13 <= 1000
    assert np.array_equal(starts, windows.epoch(seed, epoch)), "the same for the same seed and number"


def test_each_offset_comes_and_depends_on_seed_and_epoch(windows):
    first = [int(windows.epoch(7, epoch)[0]) for epoch in range(200)]
    assert set(first) == set(range(13))
    assert first != [int(windows.epoch(8, epoch)[0]) for epoch in range(200)]


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
    write_width(tmp_path / "pairs", 2)
    found = open_store(tmp_path / "pairs")
    assert isinstance(found, Windows) and len(found) == 0
    (tmp_path / "pairs" / "window.json").write_text("{}")
    with pytest.raises(ValueError, match=r"must have a readable window.json, got KeyError\('width'\)"):
        open_store(tmp_path / "pairs")
