"""A run that is replaced: it is gone when the new one's text is prepared, and not before."""

import pytest

from regard.train.run import back_up, discard_backup, restore, run_files
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
    (run / "mine.txt").touch()
    replace_run(text, run)
    assert "mine.txt" not in contents(run)
    assert contents(run).keys() == {name for name in before if "tensorboard" not in name} | {
        name for name in contents(run) if "tensorboard" in name
    }
    assert contents(run)["model/model.safetensors"] != before["model/model.safetensors"]


@pytest.mark.parametrize("bad", ["süß\tsauer\n".encode("latin-1"), b"one column\n"])
def test_a_bad_text_leaves_the_old_run_as_it_was(text, run, bad):
    before = contents(run)
    text.write_bytes(text.read_bytes() + bad)  # beyond the lines that tell the language
    with pytest.raises(ValueError, match=f"{text}, line 301"):
        replace_run(text, run)
    assert contents(run) == before
    assert not (run / ".replaced").exists()


def test_a_bad_setting_leaves_the_old_run_as_it_was(text, run):
    before = contents(run)
    sources = DataOptions((str(text),), (), (), "src", "tgt")
    with pytest.raises(ValueError, match=r"train.lr and train.clip must be positive, got -1.0"):
        start_run(run, sources, TrainOptions("tiny", overrides=("train.lr=-1.0",)), resume=False, overwrite=True)
    assert contents(run) == before


def test_the_old_run_is_there_until_the_text_is_prepared(text, run, monkeypatch):
    import regard.train.trainer as module

    real, seen = module.prepare, []

    def prepare(*args):
        seen.append((run / ".replaced" / "model" / "model.safetensors").exists())
        return real(*args)

    monkeypatch.setattr(module, "prepare", prepare)
    start_run(run, DataOptions((str(text),), (), (), "src", "tgt"), SAID, resume=False, overwrite=True)
    train(
        make_settings(text, {"train": {"max_steps": 4}}),
        run,
        lambda progress: seen.append((run / ".replaced").exists()),
    )
    assert seen == [True, False]


def test_a_replacement_that_was_killed_keeps_the_first_run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "old").write_text("old")
    back_up(folder)
    (folder / "half").mkdir()
    (folder / "half" / "new").touch()
    back_up(folder)  # told to replace once more
    assert run_files(folder) == []
    restore(folder)
    assert contents(folder) == {"old": b"old"}
    back_up(folder)
    (folder / "new").touch()
    discard_backup(folder)
    assert [path.name for path in folder.iterdir()] == ["new"]


def test_a_file_is_no_run(text, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"file: a run needs a folder, got a file of this name"):
        start_run(tmp_path / "file", DataOptions((str(text),), (), (), "a", "b"), SAID, resume=False, overwrite=True)
    assert (tmp_path / "file").read_text() == "mine"
