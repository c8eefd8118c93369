"""The command that runs the suites, with suites of its own that take no time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.suites import SUITES
from regard.cli import main as regard_main
from tests.benchmarks.report.test_page import RECORDS

ROOT = Path(__file__).parents[2]

# A suite writes what it is told to, or fails; its own words are passed on.
GOOD = '''"""Is it good?"""
import json, pathlib, sys
print("measuring", *sys.argv[1:-1])
folder = pathlib.Path(sys.argv[-1])
record = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
(folder / "NAME-cpu.json").write_text(json.dumps(record))
print(json.dumps(record))
'''
BAD = '''"""Is it bad?"""
import sys
for at in range(40):
    print("step", at)
sys.exit("the kettle is empty")
'''


@pytest.fixture
def run(capfd, monkeypatch):
    """Run one command in this process and return what it printed."""

    def run_command(*args, code=0, main=command.main):
        monkeypatch.setattr(sys, "argv", ["benchmarks", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capfd.readouterr()
        assert (stop.value.code or 0) == code, printed.err
        assert "Traceback" not in printed.err
        return printed

    return run_command


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """Make a folder of suites: two that work, one that fails."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    for name in ("trace", "attention"):
        (folder / f"{name}.py").write_text(GOOD.replace("NAME", name))
        (folder / f"{name}.json").write_text(json.dumps(RECORDS[name, "cpu"]))
    (folder / "decode.py").write_text(BAD)
    monkeypatch.setattr(command, "SCRIPTS", folder)
    monkeypatch.chdir(tmp_path)
    return folder


def test_suites_run_and_leave_their_results(run, scripts):
    printed = run("attention", "--device", "cpu")
    assert "measuring --results" in printed.out
    assert '{"' not in printed.out
    assert "attention: done after" in printed.err
    assert json.loads((scripts / "results" / "attention-cpu.json").read_text()) == RECORDS["attention", "cpu"]


def test_a_suite_that_fails_says_so_and_the_others_go_on(run, scripts, tmp_path):
    page = tmp_path / "page.md"
    printed = run("decode", "attention", "--device", "cpu", "--doc", page, code=1)
    assert "decode failed with exit code 1; its last lines:" in printed.err
    told = printed.err.partition("last lines:")[2]
    assert "the kettle is empty" in told
    assert "step 39" in told
    assert "step 5\n" not in told
    assert "attention: done after" in printed.err
    text = page.read_text(encoding="utf-8")
    assert "## Attention layers, on a CPU" in text
    assert "*Is it good?*" in text
    assert (tmp_path / "images" / "page-attention-cpu.png").exists()


def test_json_has_outcomes_and_results_and_nothing_else_on_stdout(run, scripts, tmp_path):
    printed = run("attention", "decode", "--device", "cpu", "--json", "--results", tmp_path / "new", code=1)
    found = json.loads(printed.out)
    assert [(each["suite"], each["code"]) for each in found["suites"]] == [("attention", 0), ("decode", 1)]
    assert found["results"] == {"attention-cpu.json": RECORDS["attention", "cpu"]}
    assert "measuring" in printed.err


def test_show_runs_nothing_and_needs_no_suites(run, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "SCRIPTS", tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "kept"
    folder.mkdir()
    for (name, device), record in RECORDS.items():
        (folder / f"{name}-{device}.json").write_text(json.dumps(record))
    (folder / "growth-cuda.json").write_text("{")
    printed = run("--show", "--results", folder, "--doc", "page.md")
    assert "Attention layers, on a CPU: Layers, causal" in printed.out
    assert "left out: growth-cuda.json" in printed.err
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "`python -m benchmarks --show --doc page.md`" in text
    assert str(tmp_path) not in text
    assert "## Decoding, on a GPU" in text
    only = json.loads(run("train", "--show", "--results", folder, "--json").out)
    assert list(only["results"]) == ["train-cpu.json"]
    assert "there are no results in" in run("write", "--show", "--results", tmp_path).err


def test_without_its_scripts_every_suite_is_left_out_with_its_reason(run, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "SCRIPTS", tmp_path / "nowhere")
    for given, code in ((), 0), (("--quick",), 0), (("train",), 1):
        error = run(*given, "--results", tmp_path, "--device", "cpu", code=code).err
        assert "train left out: train.py is missing from nowhere/" in error
    assert "train.py is missing from nowhere/" in " ".join(run("--list").out.split())


def test_it_runs_from_a_clone_and_is_no_command_of_the_package(run):
    listing = [sys.executable, "-m", "benchmarks", "--list", "--json"]
    printed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [suite["name"] for suite in json.loads(printed)] == [suite.name for suite in SUITES]
    assert "No such command 'bench'" in run("bench", code=2, main=regard_main).err


def test_what_cannot_run_here_is_left_out_with_its_reason(run, scripts):
    printed = run("--device", "cpu", "--quick", "--results", scripts / "quick", code=1)  # decode fails
    assert "growth left out: growth.py is missing from benchmarks/" in printed.err
    assert "attention: done" in printed.err
    run("growth", "--device", "cpu", "--quick", code=1)
    (scripts / "decode.py").write_text(GOOD.replace("NAME", "attention"))
    (scripts / "decode.json").write_text("{}")
    run("--device", "cpu", "--results", scripts / "quick")  # nobody asked for what was left out


def test_quick_results_do_not_replace_figures(run, scripts):
    printed = run("attention", "--device", "cpu", "--quick")
    assert "measuring --quick --results" in printed.out
    assert not (scripts / "results").exists()


def test_unknown_suites_and_pages_are_refused(run, scripts):
    assert "unknown suite for cpu 'atention': did you mean 'attention'?" in run("atention", code=2).err
    assert "'kernels'" in run("kernels", "--device", "cpu", code=2).err
    assert "must end in .md, got 'page.txt'" in run("--doc", "page.txt", code=2).err


def test_the_list_says_what_each_asks(run, scripts):
    shown = " ".join(run("--list").out.split())
    assert "Is it good?" in shown
    assert "trace cpu" in shown
    assert len(json.loads(run("--list", "--json").out)) == len(SUITES)
