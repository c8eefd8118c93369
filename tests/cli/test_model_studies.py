"""The commands that study a model, run as a user runs them."""

import json
import sys

import pytest
from rich.table import Table
from rich.text import Text

from regard.cli import main
from regard.cli.study_runner import command_line, table_json
from tests.cli.pages import filled
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


TABLES = {
    "position-probe": ["stream", "updates", "small-models"],
    "subspaces": ["angles", "stream"],
    "mean-split": ["variance", "pairs", "heads"],
    "heads": ["quality", "importance"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_study_prints_tables_and_draws(run, name, tmp_path):
    out = tmp_path / "x.svg"
    printed = run(name, "--out", out)
    assert "encoder" in printed.out and max(map(len, printed.out.splitlines())) <= 80
    assert "pairs skipped, as a side is empty or longer than the model reads: 1" in printed.err
    assert out.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_for_programs(run, name, tmp_path):
    found = json.loads(run(name, "--json", "--seed", 3).out)
    assert found["study"] == name
    assert found["signature"]["seed"] == 3 and found["signature"]["pairs"] == (12 if name == "heads" else 24)
    assert {"model", "n_unread"} <= found.keys()
    shown = f"regard study {name} {tmp_path.name}/model --data {tmp_path.name}/pairs.tsv --quick"
    assert found["signature"]["command"].startswith(shown) and str(tmp_path) not in json.dumps(found)
    assert list(found["tables"]) == TABLES[name]
    assert f"Signature: `{shown}" in filled(found)
    for table in found["tables"].values():
        assert table["rows"] and all(len(row) == len(table["columns"]) for row in table["rows"])


def test_a_table_is_text_without_line_breaks():
    table = Table(title="t", caption="a\nnote")
    table.add_column("opera-\ntions")
    table.add_column("two\nlines", justify="right")
    table.add_row("a|b", Text("1"))
    expected = {"columns": ["operations", "two lines"], "rows": [["a|b", "1"]], "title": "t", "note": "a note"}
    assert table_json(table) == expected
    assert table_json(Table()) == {"columns": [], "rows": []}


def test_the_same_seed_gives_the_same_numbers(run):
    one, same, other = (json.loads(run("subspaces", "--json", "--seed", seed).out) for seed in (3, 3, 4))
    assert one == same
    assert one["stacks"] != other["stacks"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--out", "x.jpg"], "must end in .png, .svg, .pdf, got 'x.jpg'"),
        (["--out", "nowhere/x.png"], "the folder for 'x.png' does not exist: nowhere"),
        (["--limit", "3"], "pairs or more that the model can read, got 3"),
        (["--sentences", "3"], "pairs or more that the model can read, got 3"),
        (["--device", "gpu"], "unknown device 'gpu': did you mean 'cpu'? valid are auto, cpu, cuda, cuda:N"),
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
        "--out=/a/x.png",
        "-o",
    ]
    assert command_line([*argv, "y.png", "--json", "--quick"]) == "regard study heads zh-en --data c/pairs.tsv --quick"
