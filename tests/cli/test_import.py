"""The command import, and their folders where other commands want a model."""

import json
import sys

import pytest

from regard.cli import main
from tests.foreign.theirs import marian, sentences


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    return marian(tmp_path_factory.mktemp("their") / "my-model").folder


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Runs the program with some arguments, and gives what it printed; it must end with this exit code."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run_with(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert ended.value.code in ({0, None} if code == 0 else {code}), printed.err
        return printed

    return run_with


def test_a_model_is_taken_over(theirs, tmp_path, run):
    out = tmp_path / "ours"
    said = run("import", theirs, "--out", out).err
    assert "MarianMT, " in said and "parameters, en → fr, in" in said
    again = run("import", theirs, "--out", out, code=2).err
    assert "there is something here already: --overwrite replaces it" in " ".join(again.split())
    found = json.loads(run("import", theirs, "--out", out, "--overwrite", "--from", "eng", "--json").out)
    assert found["settings"]["data"]["src_lang"] == "eng" and found["notes"] == []
    assert run("info", out).out and "MarianMT, imported from my-model" in (out / "card.md").read_text(encoding="utf-8")
    text = sentences(1, seed=3)[0]
    assert run("translate", "-m", out, text).out == run("translate", "-m", theirs, text).out
    assert "must be the model's own language" in run("translate", "-m", out, "--to", "de", text, code=2).err


def test_what_is_no_source_is_refused(theirs, tmp_path, run):
    for source, said in (
        (tmp_path / "none" / "x" / "y", "got no such folder: name another"),
        (theirs / "vocab.json", "got a file: name another"),
        (tmp_path, "got another: a model of ours needs no import"),
    ):
        assert said in " ".join(run("import", source, "--out", tmp_path / "out", code=2).err.split())
    assert not (tmp_path / "out").exists()


def test_an_imported_model_is_not_exported_to_other_programs(theirs, tmp_path, run):
    run("import", theirs, "--out", tmp_path / "ours")
    said = run("export", tmp_path / "ours", "--to", "ctranslate2", "--out", tmp_path / "o", code=2).err
    assert "an export must have a tokenizer of ours, got an imported model's" in " ".join(said.split())
    run("export", tmp_path / "ours", "--out", tmp_path / "small", "--precision", "int8")
    assert run("translate", "-m", tmp_path / "small", "the road").out
