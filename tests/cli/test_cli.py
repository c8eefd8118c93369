"""The command line, run as a user runs it."""

import errno
import json
import os
import subprocess
import sys

import pytest

from regard.cli import COMMANDS, GROUPS, RENAMED, LazyCommand, check_arguments, main, make_program

REGARD = [sys.executable, "-m", "regard"]
IMPORT_TORCH = ["-c", "import torch"]


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


def loaded_by(*args):
    """Runs a command in a process of its own; gives the modules that it has loaded in the end."""
    code = f"""
import sys
from regard.cli import main
sys.argv = ["regard", *{args!r}]
try:
    main()
except SystemExit:
    pass
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("args", [("--help",), ("--version",), ("study", "--help"), ("qa", "-h")])
def test_help_and_version_import_no_command(args):
    loaded = loaded_by(*args)
    assert not loaded & {"torch", "matplotlib", "numpy"}
    light = {f"regard.{name}" for name in ("cli", "terminal", "atomic", "extras")}
    assert {name for name in loaded if name.startswith("regard.")} <= light


def test_translating_imports_no_other_command_and_no_room_below():
    loaded = loaded_by("translate", "--help")
    assert {name for name in loaded if name.startswith("regard.cli.")} == {"regard.cli.options", "regard.cli.translate"}
    rooms = {name.split(".")[1] for name in loaded if name.startswith("regard.")}
    assert not rooms & {"train", "trace", "align", "plot", "qa", "study", "serve", "notebook"}
    assert not loaded & {"torch", "matplotlib", "sacrebleu"}


@pytest.mark.parametrize("command", ["models", "info"])
def test_listing_models_imports_no_pytorch(command):
    loaded = loaded_by(command, *["zh-en"] * (command == "info"))
    assert not loaded & {"torch", "matplotlib", "sacrebleu", "regard.train", "regard.pipeline"}


def run_without(packages, code):
    """Runs code in a process of its own where some packages are not installed."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys({packages!r}))\n"
    return subprocess.run([sys.executable, "-c", hidden + code], capture_output=True, text=True, check=False)


def test_commands_need_no_optional_package():
    """Where figures are asked for, and in `regard serve`, the error names the extra."""
    modules = sorted({module for module, _ in COMMANDS.values()} | set(GROUPS))
    code = "".join(f"import regard.cli.{module}\n" for module in modules if module != "serve")
    done = run_without(["matplotlib", "fastapi", "starlette", "pydantic", "uvicorn", "sklearn", "IPython"], code)
    assert done.returncode == 0, done.stderr


def test_a_server_needs_no_matplotlib():
    done = run_without(["matplotlib"], "import regard.cli.serve")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_a_missing_package_is_named_with_its_extra(package):
    done = run_without([package], "sys.argv = ['regard', 'serve']\nfrom regard.cli import main\nmain()")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    told = " ".join(done.stderr.split())
    assert f"regard serve needs {package}, which is not installed: pip install 'regard[serve]'" in told


def test_a_missing_module_of_our_own_is_no_missing_extra():
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        LazyCommand("serve", "nowhere", "a line").load()


def commands():
    """Gives every command by its words, loaded."""
    tables = {"": {name: module for name, (module, _) in COMMANDS.items()}}
    tables |= {f"{group} ": dict.fromkeys(names, group) for group, (_, names) in GROUPS.items()}
    listed = [(f"{prefix}{name}", name, module) for prefix, table in tables.items() for name, module in table.items()]
    return {words: LazyCommand(name, module, "a line").load() for words, name, module in listed}


def test_the_help_lists_commands_in_their_order():
    program = make_program()
    assert list(program.commands) == [*COMMANDS, *GROUPS]
    for group, (_, names) in GROUPS.items():
        assert list(program.commands[group].commands) == list(names)


def test_one_set_of_option_names_over_all_commands():
    for words, command in commands().items():
        options = {each.name: each for each in command.params if each.opts[0].startswith("-")}
        names = {name for each in options.values() for name in each.opts}
        assert not names & {f"--{old}" for old in RENAMED}, words
        for name, short in (("model", "-m"), ("out", "-o")):
            assert name not in options or {f"--{name}", short} == set(options[name].opts), words
        if "device" in options:
            told = options["device"]
            assert (told.default or told.show_default) == "auto", words
        assert "device" in options or words not in {"train", "translate", "generate", "heads", "study images"}
        for name, option in (("json_", "--json"), ("seed", "--seed"), ("quick", "--quick"), ("limit", "--limit")):
            assert name not in options or options[name].opts == [option], words


def test_help_is_written_in_full_sentences():
    for words, command in commands().items():
        for each in command.params:
            assert each.help[0].isupper() or each.help.split()[0].strip(",") in {
                "cpu",
                "float32",
                "chain",
                "scratch",
            }, words
            assert each.help.endswith((".", "…")), f"{words}: {each.help}"


@pytest.mark.parametrize(
    "line", ["Let go of all", "Draw also", "foresee", "likelier", "likeliest", "Look through the words"]
)
def test_no_help_has_the_words_of_old(line):
    for words, command in commands().items():
        said = " ".join([command.help or "", *(each.help or "" for each in command.params)])
        assert line not in said, words


def test_help_is_quick():
    """In processor time, which others on the machine hardly change: less than half of what importing PyTorch takes."""

    def cpu_seconds(*command):
        before = os.times()
        subprocess.run([sys.executable, *command], capture_output=True, check=True)
        after = os.times()
        spent = [getattr(after, name) - getattr(before, name) for name in ("children_user", "children_system")]
        return sum(spent)

    help_, torch = (min(cpu_seconds(*command) for _ in range(2)) for command in (["-m", "regard", "-h"], IMPORT_TORCH))
    assert help_ < torch / 2


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
        (["positions", "sinusoidal", "--base", "nan"], "--base must be a finite number, got nan"),
        (["regression", "--noise", "nan"], "--noise must be a finite number, got nan"),
        (["regression", "--noise", "inf"], "--noise must be a finite number, got inf"),
        (["study", "subspaces", "--share", "-inf"], "--share must be a finite number, got -inf"),
        (["positions", "--model", "zh-en", "--width", "8"], "a model brings its own encodings, width and base"),
        (["positions", "--shift", "512"], "less than the length 512, got 512"),
    ],
)
def test_bad_numbers_end_in_one_line(run, args, message):
    done = run(*args, code=2)
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "runs/a: No space left on device: make room, and run the command again"),
        (errno.EDQUOT, "runs/a: Disk quota exceeded: make room, and run the command again"),
        (errno.EACCES, "runs/a: Permission denied\n"),
    ],
)
def test_an_error_of_the_system_is_one_line_with_its_path(run, monkeypatch, number, said):
    def fail():
        raise OSError(number, os.strerror(number), "runs/a")

    monkeypatch.setattr("regard.cli.make_program", lambda: fail)
    error = run(code=2).err
    assert f"error: {said}" in error and error.count("\n") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is always full is Linux's")
@pytest.mark.parametrize("args", [["--version"], ["--help"]])
def test_a_full_disk_under_the_output_is_said(args):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*REGARD, *args], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        *(2, "error: the output: No space left on device: make room, and run the command again\n"),
    )


@pytest.mark.parametrize("command", [["translate"], ["generate", "--model", "m"], ["translate", "--model", "zh-en"]])
def test_an_argument_that_is_no_text_is_refused(run, command):
    """Of bytes that are not UTF-8 Python makes lone surrogates, which no tokenizer knows."""
    said = run(*command, os.fsdecode(b"caf\xe9"), code=2).err
    assert r"an argument must be UTF-8, got b'caf\xe9'" in said.replace("\n", " ")


def test_a_file_may_have_any_name(run, tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    open(path, "wb").close()
    check_arguments(["translate", path])
