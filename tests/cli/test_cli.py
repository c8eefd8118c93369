"""The command line, run as a user runs it."""

import json
import subprocess
import sys
import time

import pytest

from regard.cli import main

REGARD = [sys.executable, "-m", "regard"]


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs one command in this process and gives what it printed."""

    def command(*args, code=0):
        monkeypatch.setattr(sys, "argv", ["regard", *args])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert (stop.value.code or 0) == code, printed.err
        return printed

    return command


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_do_not_import_torch(option):
    code = f"""
import sys
from regard.cli import main
sys.argv = ["regard", "{option}"]
try:
    main()
except SystemExit:
    print("torch" in sys.modules, "matplotlib" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"


def test_help_is_quick():
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([*REGARD, "--help"], capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    # Well under half a second on a quiet machine; importing torch alone takes two.
    assert min(times) < 1.0


@pytest.mark.parametrize(
    "command",
    [
        ["regression", "--steps", "20"],
        ["scores"],
        ["positions", "sinusoidal", "t5", "--length", "24", "--width", "6"],
    ],
)
@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_every_command_prints_json_and_draws(run, command, ending, magic, tmp_path):
    out = tmp_path / f"figure.{ending}"
    done = run(*command, "--json", "--out", str(out))
    assert json.loads(done.out)
    assert out.read_bytes().startswith(magic)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_tables_are_for_people(run):
    assert "Gaussian kernel, learned" in run("regression", "--steps", "5").out
    assert "Why √d" in run("scores").out
    assert "half as many flips" in run("positions", "sinusoidal").out


def test_an_unknown_scheme_is_answered_with_the_nearest_and_all(run):
    error = run("positions", "sinusodal", code=2).err
    assert "unknown position 'sinusodal': did you mean 'sinusoidal'?" in error
    assert "grid_3d" in error


def test_a_figure_that_cannot_be_saved_is_refused_before_any_work(run, tmp_path):
    assert "must end in .png, .svg, .pdf, got 'x.jpg'" in run("regression", "--out", "x.jpg", code=2).err
    error = run("regression", "--out", str(tmp_path / "nowhere" / "x.png"), code=2).err
    assert "the folder for 'x.png' does not exist" in error


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["regression", "--points", "1"], "n_train must be 2 or more and n_test 1 or more, got 1 and 100"),
        (["regression", "--noise", "-1"], "noise must be 0 or more and steps 1 or more, got -1.0 and 200"),
        (["scores", "--width", "0"], "width must be 1 or more, got 0"),
        (["scores", "--keys", "one"], "got 3 and 1"),
        (["positions", "--length", "2"], "length must be 8 or more and width 3 or more, got 2 and 128"),
        (["positions", "sinusoidal", "--base", "0.5"], "base must be larger than 1, got 0.5"),
    ],
)
def test_bad_numbers_end_in_one_line(run, args, message):
    done = run(*args, code=2)
    assert message in done.err
    assert "Traceback" not in done.err
