"""The command clean: files, standard input and output, tables, JSON, and what is refused."""

import gzip
import json

import pytest

from tests.cli.test_commands import run  # noqa: F401  # pyright: ignore[reportUnusedImport]

ROWS = [
    ("Das ist ein guter Satz.", "This is a good sentence."),
    ("Das ist ein guter Satz.", "This is a good sentence."),
    ("Wir kommen morgen nicht.", "We do not come tomorrow."),
    ("Das hier ist gar keine Übersetzung.", "Das hier ist gar keine Übersetzung."),
    ("Warte 40 Sekunden.", "Wait 60 seconds."),
    ("", "nothing"),
]
GERMAN = ("--from", "de", "--to", "en", "--workers", 1)


@pytest.fixture
def text(tmp_path):
    source = tmp_path / "pairs.tsv"
    source.write_text("".join(f"{a}\t{b}\n" for a, b in ROWS) + "no tab\n", encoding="utf-8")
    return source


def test_pairs_are_divided_and_reported(run, text, tmp_path):  # noqa: F811
    kept, rejected, report = tmp_path / "kept.tsv.gz", tmp_path / "dropped.tsv", tmp_path / "report.json"
    out = run("clean", "--data", text, "--out", kept, "--rejected", rejected, "--report", report, *GERMAN)
    assert "7 pairs read (de–en), 2 kept" in out.out
    assert gzip.decompress(kept.read_bytes()).decode().splitlines() == ["\t".join(ROWS[0]), "\t".join(ROWS[2])]
    rows = [line.split("\t") for line in rejected.read_text(encoding="utf-8").splitlines()]
    assert [row[0] for row in rows] == ["duplicate", "copy", "numbers", "empty", "unreadable"]
    assert json.loads(report.read_text())["dropped"] == dict.fromkeys([row[0] for row in rows], 1)


def test_scores_are_columns_and_rules_are_skipped(run, text, tmp_path):  # noqa: F811
    kept = tmp_path / "kept.tsv"
    run(
        "clean",
        "--data",
        text,
        "--out",
        kept,
        "--keep-score",
        "--skip",
        "duplicate",
        "--skip",
        "near-duplicate",
        *GERMAN,
    )
    rows = [line.split("\t") for line in kept.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 3 and all(len(row) == 6 and row[5] == "" for row in rows)
    assert all(float(row[3]) < 0 and float(row[4]) < 0 for row in rows)


def test_standard_input_and_output(run, text):  # noqa: F811
    printed = run("clean", "--data", "-", "--out", "-", *GERMAN, stdin=text.read_text(encoding="utf-8"))
    assert printed.out.splitlines() == ["\t".join(ROWS[0]), "\t".join(ROWS[2])]
    assert "standard input, line 7: a line must have two columns" in printed.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--skip", "copies"), "'copies'"),
        (("--threshold", "1.5"), "got 1.5"),
        (("--workers", "-1"), "got -1"),
        (("--from", "xx"), "got 'xx'"),
        (("--model", "zh-en"), "--model zh-en alone"),
        (("--reverse-model", "en-zh"), "--reverse-model en-zh alone"),
        (("--model", "zh-en", "--reverse-model", "zh-en"), "got one from zh to en"),
        (("--rejected", "kept.tsv"), "'kept.tsv' twice"),
        (("--report", "nowhere/report.json"), "nowhere"),
    ],
)
def test_mistakes_are_named(run, text, tmp_path, monkeypatch, options, words):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    error = run("clean", "--data", text, "--out", "kept.tsv", *options, code=2).err
    assert words in error, error
    assert not (tmp_path / "kept.tsv").exists()
