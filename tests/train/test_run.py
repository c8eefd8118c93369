"""A run that is replaced: it is gone when the new one's text is prepared, and not before."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from socket import gethostname

import pytest

from regard.train.run import BACKUP, back_up, discard_backup, lock_run, restore, run_files
from regard.train.start import DataOptions, TrainOptions, start_run
from regard.train.trainer import train
from tests.train.tiny import make_settings, reversals, run_training, write_tsv

SAID = TrainOptions("tiny", "transformer")


@pytest.fixture
def text(tmp_path):
    return write_tsv(tmp_path / "pairs.tsv", reversals(300, seed=5))


@pytest.fixture
def run(text, tmp_path):
    run_training(make_settings(text, {"train": {"max_steps": 4}}), tmp_path / "run")
    return tmp_path / "run"


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def replace_run(text, run):
    sources = DataOptions((str(text),), (), (), "src", "tgt")
    start_run(run, sources, SAID, resume=False, overwrite=True)
    return run_training(make_settings(text, {"train": {"max_steps": 4, "seed": 3}}), run)


def test_a_run_is_replaced_whole(text, run):
    before = contents(run)
    replace_run(text, run)
    assert contents(run).keys() == {name for name in before if "tensorboard" not in name} | {
        name for name in contents(run) if "tensorboard" in name
    }
    assert contents(run)["model/model.safetensors"] != before["model/model.safetensors"]


def test_files_of_others_stay_when_a_run_is_replaced(text, run):
    theirs = ["mine.txt", "sub/mine.txt", "model/mine.txt", "checkpoints/step-notes/a", "data/mine.tsv"]
    for name in theirs:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text(name)
    before = contents(run)
    replace_run(text, run)
    after = contents(run)
    assert [after[name] for name in theirs] == [name.encode() for name in theirs]
    assert after["model/model.safetensors"] != before["model/model.safetensors"]
    assert not (run / BACKUP).exists()


@pytest.mark.parametrize("name", ["data", "config.json", "model"])
def test_something_else_by_the_name_of_a_runs_file_is_not_replaced(text, tmp_path, name):
    project = tmp_path / "project"
    project.mkdir()
    path = project / name
    if path.suffix:
        path.write_text("{}")
    else:
        path.mkdir()
        (path / "mine").touch()
    before = contents(project)
    sources = DataOptions((str(text),), (), (), "src", "tgt")
    with pytest.raises(ValueError, match=f"{path}: --overwrite replaces a run, got something else by this name"):
        start_run(project, sources, SAID, resume=False, overwrite=True)
    assert contents(project) == before


HOLD = """
import json, os, socket, sys, time
from pathlib import Path
from filelock import FileLock
folder = Path(sys.argv[1])
lock = FileLock(folder / ".regard-lock")
lock.acquire()
(folder / ".regard-lock.json").write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_dies_with_its_process(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match=f"while process {holder.pid} on {gethostname()} trains"), lock_run(tmp_path):
        pass
    holder.kill()
    holder.communicate()
    with lock_run(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {".regard-lock", ".regard-lock.json"}
    assert list(tmp_path.iterdir()) == []


def test_a_lock_can_be_taken_again_by_its_holder_alone(tmp_path):
    folder = tmp_path / "run"

    def take():
        with lock_run(folder):
            pass

    with ThreadPoolExecutor(1) as other, lock_run(folder):
        take()
        with pytest.raises(ValueError, match=f"while process {os.getpid()} on "):
            other.submit(take).result()
    with pytest.raises(KeyError), lock_run(tmp_path / "new"):
        raise KeyError
    assert not (tmp_path / "new").exists()


def test_a_run_needs_no_main_thread(text, tmp_path):
    settings = make_settings(text, {"train": {"max_steps": 2}})
    with ThreadPoolExecutor(1) as other:
        assert other.submit(run_training, settings, tmp_path / "run").result().progress.step == 2


def test_two_trainings_at_once_do_not_share_a_folder(text, tmp_path):
    """The second is refused, whatever it was told, and the first ends as if nothing had been."""
    refused, folder = [], tmp_path / "run"

    def second(progress):
        for settings in (make_settings(text), make_settings(text, {"train": {"max_steps": 2}})):
            with ThreadPoolExecutor(1) as other:  # a thread of its own, as a process of its own would be
                refused.append(str(other.submit(run_training, settings, folder).exception()))

    outcome = train(make_settings(text, {"train": {"max_steps": 4}}), folder, second)
    assert len(refused) == 2 and all(f"{folder}: a folder holds one training at a time" in said for said in refused)
    assert outcome.progress.step == 4
    assert (folder / "model" / "model.safetensors").exists()


@pytest.mark.parametrize("bad", ["süß\tsauer\n".encode("latin-1"), b"one column\n"])
def test_a_bad_text_leaves_the_old_run_as_it_was(text, run, bad):
    before = contents(run)
    text.write_bytes(text.read_bytes() + bad)  # beyond the lines that tell the language
    with pytest.raises(ValueError, match=f"{text}, line 301"):
        replace_run(text, run)
    assert contents(run) == before
    assert not (run / ".regard-replaced").exists()


def test_a_bad_setting_leaves_the_old_run_as_it_was(text, run):
    before = contents(run)
    sources = DataOptions((str(text),), (), (), "src", "tgt")
    with pytest.raises(ValueError, match=r"train.lr and train.clip must be positive, got -1.0"):
        start_run(run, sources, TrainOptions("tiny", overrides=("train.lr=-1.0",)), resume=False, overwrite=True)
    assert contents(run) == before


def test_the_old_run_is_there_until_the_text_is_prepared(text, run, monkeypatch):
    import regard.train.trainer as module

    real, seen = module.prepare, []

    def prepare(*args, **options):
        seen.append((run / ".regard-replaced" / "model" / "model.safetensors").exists())
        return real(*args, **options)

    monkeypatch.setattr(module, "prepare", prepare)
    start_run(run, DataOptions((str(text),), (), (), "src", "tgt"), SAID, resume=False, overwrite=True)
    train(
        make_settings(text, {"train": {"max_steps": 4}}),
        run,
        lambda progress: seen.append((run / ".regard-replaced").exists()),
    )
    assert seen == [True, False]


def test_a_replacement_that_was_killed_keeps_the_first_run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "log.txt").write_text("old")
    back_up(folder)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").touch()
    back_up(folder)  # told to replace once more
    assert run_files(folder) == {}
    restore(folder)
    assert contents(folder) == {"log.txt": b"old"}
    back_up(folder)
    (folder / "new").touch()
    discard_backup(folder)
    assert [path.name for path in folder.iterdir()] == ["new"]


def test_a_file_is_no_run(text, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"file: a run needs a folder, got a file of this name"):
        start_run(tmp_path / "file", DataOptions((str(text),), (), (), "a", "b"), SAID, resume=False, overwrite=True)
    assert (tmp_path / "file").read_text() == "mine"
