"""The commands that study a model, run as a user runs them."""

import json
import sys

import pytest

from regard.cli import main
from regard.cli.study_text import command_line
from tests.cli.test_align import saved
from tests.study.models import make_pairs

COMMANDS = {
    "position-probe": ["--steps", 2],
    "subspaces": ["--top", 3],
    "mean-split": [],
    "heads": ["--points", 3],
}


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs a command on a random model and a small text, and gives what it printed."""
    folder, data = saved(tmp_path / "model", src_lang="zh", tgt_lang="en"), tmp_path / "pairs.tsv"
    lines = [*make_pairs(24, longest=7), ("", "a")]
    data.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in lines), encoding="utf-8")

    def command(name, *args, code=0):
        given = ["regard", "study", name, folder, "--data", data, "--quick", *COMMANDS[name], *args]
        monkeypatch.setattr(sys, "argv", [str(each) for each in given])
        monkeypatch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert (stop.value.code or 0) == code, printed.err
        assert "Traceback" not in printed.err
        return printed

    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_a_study_prints_tables_and_writes_its_page(run, name, tmp_path):
    doc, out = tmp_path / "docs" / "page.md", tmp_path / "x.svg"
    doc.parent.mkdir()
    printed = run(name, "--doc", doc, "--out", out)
    assert "encoder" in printed.out and max(map(len, printed.out.splitlines())) <= 80
    assert "pairs left out, as a side is empty or longer than the model reads: 1" in printed.err
    assert out.read_bytes().startswith(b"<?xml")
    assert (doc.parent / "images" / "page.png").read_bytes().startswith(b"\x89PNG")
    page = doc.read_text(encoding="utf-8")
    shown = f"regard study {name} {tmp_path.name}/model --data {tmp_path.name}/pairs.tsv --quick"
    assert shown in page and str(tmp_path) not in page
    assert "Signature: regard " in page and "seed 0" in page and "--doc" not in page


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_for_programs(run, name):
    found = json.loads(run(name, "--json", "--seed", 3).out)
    assert found["signature"]["seed"] == 3 and found["signature"]["pairs"] == (12 if name == "heads" else 24)
    assert {"model", "n_unread"} <= found.keys()


def test_the_same_seed_gives_the_same_numbers(run):
    one, same, other = (json.loads(run("subspaces", "--json", "--seed", seed).out) for seed in (3, 3, 4))
    assert one == same
    assert one["stacks"] != other["stacks"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--out", "x.jpg"], "must end in .png, .svg, .pdf, got 'x.jpg'"),
        (["--doc", "page.txt"], "a page's file must end in .md, got 'page.txt'"),
        (["--doc", "nowhere/page.md"], "the folder for 'page.md' does not exist: nowhere"),
        (["--sentences", "3"], "pairs or more that the model can read, got 3"),
        (["--device", "gpu"], "must be auto, cpu, cuda or cuda:N, got 'gpu'"),
    ],
)
def test_mistakes_end_in_one_line(run, args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in run("mean-split", *args, code=2).err


def test_the_text_that_comes_along_needs_its_languages(capsys, monkeypatch, tmp_path):
    folder = saved(tmp_path / "model", src_lang="de", tgt_lang="en")
    monkeypatch.setattr(sys, "argv", ["regard", "study", "mean-split", str(folder)])
    with pytest.raises(SystemExit):
        main()
    assert "the model translates de to en: give a text with --data" in capsys.readouterr().err


def test_a_command_is_shown_as_anybody_can_type_it():
    argv = [
        "/x/bin/regard",
        "study",
        "heads",
        "zh-en",
        "--data",
        "/a/b/c/pairs.tsv",
        "--doc",
        "/a/p.md",
        "--out=/a/x.png",
        "-o",
    ]
    assert command_line([*argv, "y.png", "--json", "--quick"]) == "regard study heads zh-en --data c/pairs.tsv --quick"
