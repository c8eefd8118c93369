"""The README keeps its word: its code runs, its commands run, its tree is the tree."""

import itertools
import re
import shlex
import sys
from pathlib import Path

import pytest

from regard.cli import main
from regard.position import POSITION

from .test_rooms import DOORS, ROOMS, SOURCE, first_words

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def tree():
    """Lists the files in the order of the rooms, each with the first sentence that it says about itself."""
    lines = ["src/regard/"]
    for room in (*ROOMS, *sorted(DOORS)):
        inside = sorted(path for path in (SOURCE / room).glob("*") if path.suffix in {".py", ".h", ".cpp"})
        for path in [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").exists() else inside:
            lines.append(f"  {path.relative_to(SOURCE)!s:<27}{first_words(path).rstrip('.')}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("block", blocks("python"))
def test_python_blocks_run(block):
    before = dict(POSITION)
    try:
        exec(compile(block, "README.md", "exec"), {})
    finally:
        POSITION.clear()
        POSITION.update(before)


COMMANDS = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("regard ")])
def test_commands_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code, capsys.readouterr().err


TUTORIAL = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ regard ")]
SHORT = {"train": " --set train.max_steps=2 --set text.vocab_size=300", "qa train": " --set train.epochs=1"}


def name(command):
    """Gives the command's own words."""
    first, second, *_ = command.split()[1:]
    return f"{first} {second}" if first == "qa" else first


def test_the_tutorial_s_commands_run(tmp_path, monkeypatch, capsys):
    """On a little text of its own and for a few steps: what the commands are, not how good the model is."""
    monkeypatch.chdir(tmp_path)
    pairs = [f"{' '.join(word)}\t{' '.join(reversed(word))}" for word in itertools.permutations("abcd")]
    Path("pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    lines = ["To be", *(pair.replace("\t", " ") for pair in pairs)]
    Path("text.txt").write_text("\n".join(lines * 3) + "\n", encoding="utf-8")
    Path("facts.txt").write_text("Ben lives in Rome. Anna lives in Oslo.\n", encoding="utf-8")
    first, more = ["train", "translate", "evaluate", "info"], ["train", "translate", "export", "shortlist", "translate"]
    last = ["train", "generate", "qa train", "qa ask"]
    assert [name(command) for command in TUTORIAL] == [*first, *more, "heads", "align", *last]
    for command in TUTORIAL:
        monkeypatch.setattr(sys, "argv", shlex.split(command + SHORT.get(name(command), "")))
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code, capsys.readouterr().err
    assert Path("runs/mine/training.png").exists()
    assert Path("mine-small/model.safetensors").exists()
    assert "\t" in Path("bt.tsv").read_text(encoding="utf-8")
    assert len(Path("translations.txt").read_text(encoding="utf-8").splitlines()) == 3 * len(lines)


def test_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make (\w+)", "\n".join(blocks("sh"))):
        assert f"\n{target}:" in makefile, target


def test_the_tree_is_the_tree():
    assert blocks("text") == [tree()], "README's tree differs; it must be:\n" + tree()


def test_pictures_and_pages_exist():
    for link in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / link).exists(), link
