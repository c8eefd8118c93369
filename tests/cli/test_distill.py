"""A student learns from its teacher's translations: from pairs and lines, interrupted, in reverse, and refused."""

import json

import pytest

from regard.checkpoint import CONFIG, read_settings
from regard.pipeline import load_translator
from tests.cli.test_commands import run  # noqa: F401  # pyright: ignore[reportUnusedImport]
from tests.train.tiny import TABLES, reversals, trained_once, write_tsv

PAIRS = reversals(60, seed=8)
QUICK = TABLES | {"train": TABLES["train"] | {"max_steps": 2}}
SETS = [
    part
    for table, values in QUICK.items()
    for key, value in values.items()
    if table != "data"
    for part in ("--set", f"{table}.{key}={json.dumps(value)}")
]


@pytest.fixture(scope="session")
def teacher(tmp_path_factory):
    return trained_once(tmp_path_factory)


@pytest.fixture
def text(tmp_path):
    return write_tsv(tmp_path / "pairs.tsv", PAIRS)


def pairs_of(folder):
    return [tuple(line.split("\t")) for part in sorted(folder.glob("part-*")) for line in part.read_text().splitlines()]


def test_the_student_learns_what_the_teacher_wrote(run, tmp_path, text, teacher):  # noqa: F811
    run("distill", "--teacher", teacher, "--data", text, "--out", tmp_path / "student", *SETS)
    written = dict(pairs_of(tmp_path / "student-text"))
    sources = list(dict.fromkeys(src for src, _ in PAIRS))
    found = load_translator(teacher).translate(sources)
    assert written == {src: each.text for src, each in zip(sources, found, strict=True) if each.text}
    settings = read_settings(tmp_path / "student/model" / CONFIG)
    assert settings.data.train == (str(tmp_path / "student-text/part-00001.tsv"),)
    assert load_translator(tmp_path / "student").translate("a b")


def test_lines_of_one_language_and_references_join(run, tmp_path, text, teacher):  # noqa: F811
    lines = tmp_path / "lines.txt"
    lines.write_text("a b c\n\na  b c\nc b\n")
    options = ("--data", text, "--lines", lines, "--references", 2, "--out", tmp_path / "s")
    run("distill", "--teacher", teacher, *options, *SETS)
    written = [src for src, _ in pairs_of(tmp_path / "s-text")]
    assert len(written) == len(set(written)) and {"a b c", "c b"} <= set(written)
    data = read_settings(tmp_path / "s/model" / CONFIG).data
    assert data.train[-1] == str(text) and data.weights == (1.0, 2.0)


def test_in_reverse_the_second_side_is_translated(run, tmp_path, teacher):  # noqa: F811
    text = write_tsv(tmp_path / "back.tsv", [(tgt, src) for src, tgt in PAIRS])
    run("distill", "--teacher", teacher, "--data", text, "--reverse", "--out", tmp_path / "s", *SETS)
    assert {second for _, second in pairs_of(tmp_path / "s-text")} <= {src for src, _ in PAIRS}
    assert read_settings(tmp_path / "s/model" / CONFIG).data.reverse


def test_what_is_there_is_not_translated_again(run, tmp_path, text, teacher, monkeypatch):  # noqa: F811
    monkeypatch.setattr("regard.train.distillation.PART", 20)
    command = ("distill", "--teacher", teacher, "--data", text, "--out", tmp_path / "s", *SETS)
    run(*command, "--set", "train.lr=-1", code=2)  # after the teacher is done
    parts = sorted((tmp_path / "s-text").glob("part-*"))
    assert len(parts) > 2
    parts[1].unlink()
    before = {part: part.stat().st_mtime_ns for part in parts if part.exists()}
    assert "--resume" in run(*command, code=2).err
    run(*command, "--resume")
    assert parts[1].exists() and before == {part: part.stat().st_mtime_ns for part in before}
    assert (tmp_path / "s/model").exists()


def test_translations_of_another_text_or_beam_do_not_go_on(run, tmp_path, text, teacher):  # noqa: F811
    command = ("distill", "--teacher", teacher, "--data", text, "--out", tmp_path / "s", *SETS)
    run(*command, "--set", "train.lr=-1", code=2)
    foreign = tmp_path / "s-text/notes.txt"
    foreign.write_text("mine")
    assert "another decode" in run(*command, "--beam", 2, "--resume", code=2).err
    write_tsv(text, PAIRS[:40])
    assert "another text" in run(*command, "--resume", code=2).err
    run(*command, "--overwrite")
    assert len(pairs_of(tmp_path / "s-text")) <= 40 and foreign.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no text for the teacher"),
        (["--data", "-"], "more than once"),
        (["--lines", "nothing.txt"], "nothing.txt"),
        (["--lines", "pairs.tsv", "--references", "1"], "--references"),
    ],
)
def test_refuses_what_cannot_be_taught(run, tmp_path, text, teacher, monkeypatch, options, message):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    assert message in run("distill", "--teacher", teacher, "--out", tmp_path / "s", *options, code=2).err
    assert not (tmp_path / "s-text").exists()
