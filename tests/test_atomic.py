"""Files and folders: written completely or not at all, and nothing of others is touched."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from regard.atomic import (
    atomic_file,
    atomic_folder,
    ensure_folder,
    latest,
    remove_drafts,
    verify_checksums,
    write_checksums,
    written_names,
)


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


@pytest.mark.parametrize("theirs", ["data.partial", "data.old", "data.backup", ".data.old"])
def test_a_neighbour_of_a_like_name_stays(tmp_path, theirs):
    (tmp_path / theirs).mkdir()
    (tmp_path / theirs / "mine").write_text("mine")
    for _ in range(2):
        with atomic_folder(tmp_path / "data") as draft:
            (draft / "new").touch()
    assert names(tmp_path) == sorted([theirs, f"{theirs}/mine", "data", "data/new"])


def test_a_neighbour_of_a_file_stays(tmp_path):
    (tmp_path / "a.txt.partial").write_text("mine")
    with atomic_file(tmp_path / "a.txt") as draft:
        draft.write_text("new")
    assert (tmp_path / "a.txt.partial").read_text() == "mine"


def test_a_neighbour_is_not_taken_for_the_folder(tmp_path):
    (tmp_path / "data.old").mkdir()
    assert latest(tmp_path / "data") == tmp_path / "data"


def test_files_of_others_move_to_the_new_folder(tmp_path):
    path = tmp_path / "data"
    for text in ("old", "new"):
        with atomic_folder(path, is_ours=lambda name: name == "ours") as draft:
            (draft / "ours").write_text(text)
        (path / "theirs").mkdir(exist_ok=True)
        (path / "theirs" / "notes").write_text("mine")
    assert names(tmp_path) == ["data", "data/ours", "data/theirs", "data/theirs/notes"]
    assert (path / "ours").read_text() == "new"


class TestKilled:
    """A process that is killed cannot clean up: what it leaves is found, or taken away by the next."""

    @pytest.fixture
    def path(self, tmp_path):
        with atomic_folder(tmp_path / "data") as draft:
            (draft / "old").touch()
        return tmp_path / "data"

    def kill_before(self, path, monkeypatch, n_renames):
        """Write the folder anew, and stop before the n-th rename as a killed process does: without cleaning up."""
        done = []

        def replace(source, target):
            if len(done) == n_renames:
                raise KeyboardInterrupt
            done.append(target)
            os.rename(source, target)

        with monkeypatch.context() as patch:
            patch.setattr("regard.atomic.os.replace", replace)
            patch.setattr("regard.atomic.shutil.rmtree", lambda *args, **kwargs: None)
            with pytest.raises(KeyboardInterrupt), atomic_folder(path) as draft:
                (draft / "new").touch()

    def test_the_old_folder_is_found_where_the_new_one_never_got_its_name(self, path, monkeypatch):
        self.kill_before(path, monkeypatch, 1)
        assert not path.exists()
        assert names(latest(path)) == ["old"]
        assert written_names(path.parent) == {"data"}
        with atomic_folder(path) as draft:
            (draft / "newest").touch()
        assert latest(path) == path
        remove_drafts(path.parent)
        assert names(path.parent) == ["data", "data/newest"]

    def test_a_draft_is_no_folder_and_is_removed_when_nobody_writes(self, path, monkeypatch):
        self.kill_before(path, monkeypatch, 0)
        (path.parent / ".regard-notes.partial").touch()
        assert written_names(path.parent) == {"data", ".regard-notes.partial"}
        assert len(names(path.parent)) == 5  # with the draft and its file
        remove_drafts(path.parent)
        assert names(path.parent) == [".regard-notes.partial", "data", "data/old"]


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "old").touch()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    with atomic_folder(tmp_path / "data") as draft:
        (draft / "new").touch()
    assert (tmp_path / "data").is_symlink()
    assert names(tmp_path) == ["data", "disk", "disk/new"]


def test_a_link_to_a_file_stays(tmp_path):
    (tmp_path / "disk.txt").write_text("old")
    (tmp_path / "a.txt").symlink_to(tmp_path / "disk.txt")
    with atomic_file(tmp_path / "a.txt") as draft:
        draft.write_text("new")
    assert (tmp_path / "a.txt").is_symlink() and (tmp_path / "disk.txt").read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit((tmp_path / "pipe").read_text)
        with atomic_file(tmp_path / "pipe") as draft:
            draft.write_text("new")
        assert read.result() == "new"
    assert (tmp_path / "pipe").is_fifo()


def test_damage_is_found_by_checksums(tmp_path):
    verify_checksums(tmp_path)  # a folder of an earlier version has none
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "b.bin"
    path.write_bytes(b"123456789")
    write_checksums(tmp_path)
    verify_checksums(tmp_path)
    path.write_bytes(b"123456788")
    # The check value of CRC-32 is that of "123456789" (RFC 1952's polynomial).
    with pytest.raises(ValueError, match=f"{path}: this file is damaged, its checksum must be cbf43926, got"):
        verify_checksums(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match=f"{path}: .*got no such file"):
        verify_checksums(tmp_path)
    (tmp_path / "checksums.json").write_text("[1")
    with pytest.raises(ValueError, match=r"checksums.json: this is not a complete file of checksums"):
        verify_checksums(tmp_path)


def test_an_error_names_what_was_to_be_written(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    for write in (atomic_file, atomic_folder):
        with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/data'"), write(tmp_path / "data"):
            raise full
    with pytest.raises(NotADirectoryError, match=f"{tmp_path}/data'"), atomic_folder(tmp_path / "data") as draft:
        (draft / "file").touch()
        (draft / "file" / "inside").touch()


def test_a_folder_with_things_of_others_stays(tmp_path):
    with pytest.raises(OSError, match="no"), ensure_folder(tmp_path / "a" / "b"):
        (tmp_path / "a" / "theirs").touch()
        raise OSError("no")
    assert names(tmp_path) == ["a", "a/theirs"]
