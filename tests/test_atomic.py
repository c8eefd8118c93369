"""Files and folders: written completely or not at all, and nothing of others is touched."""

import pytest

from regard.atomic import atomic_file, atomic_folder, backup_path, ensure_folder, latest


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_file_takes_its_place_in_the_end(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_file(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


def test_a_file_that_fails_leaves_the_old(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as draft:
        draft.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_takes_its_place_in_the_end(tmp_path):
    path = tmp_path / "deep" / "data"
    for text in ("old", "new"):
        with atomic_folder(path) as draft:
            (draft / text).write_text(text)
    assert names(tmp_path) == ["deep", "deep/data", "deep/data/new"]


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "runs" / "mine" / "data") as draft:
        (draft / "half").write_text("half")
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_a_folder_that_fails_leaves_the_old(tmp_path):
    with atomic_folder(tmp_path / "data") as draft:
        (draft / "old").touch()
    with pytest.raises(OSError, match="disk full"), atomic_folder(tmp_path / "data") as draft:
        raise OSError("disk full")
    assert names(tmp_path) == ["data", "data/old"]


def test_what_a_killed_run_left_is_taken_away(tmp_path):
    (tmp_path / "data.partial").mkdir()
    (tmp_path / "data.partial" / "half").touch()
    with atomic_folder(tmp_path / "data") as draft:
        assert names(draft) == []
    assert names(tmp_path) == ["data"]


def test_an_old_folder_is_found_where_the_new_one_never_got_its_name(tmp_path):
    path = tmp_path / "data"
    assert latest(path) == path
    backup_path(path).mkdir()
    assert latest(path) == backup_path(path)
    path.mkdir()
    assert latest(path) == path


def test_a_folder_with_things_of_others_stays(tmp_path):
    with pytest.raises(OSError, match="no"), ensure_folder(tmp_path / "a" / "b"):
        (tmp_path / "a" / "theirs").touch()
        raise OSError("no")
    assert names(tmp_path) == ["a", "a/theirs"]
