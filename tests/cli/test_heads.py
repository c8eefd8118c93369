"""The command `regard heads`, run as a user runs it."""

import json
import sys

import pytest

import regard
from regard.cli import main
from regard.trace.head_report import report_heads
from tests.cli.test_align import PAIRS, saved


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs the command in this process and gives what it printed."""
    data, folder = tmp_path / "pairs.tsv", saved(tmp_path / "model", src_lang="zh", tgt_lang="en")
    data.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS), encoding="utf-8")

    def command(*args, code=0):
        given = ["regard", "heads", "--data", data, "--model", folder, *args]
        monkeypatch.setattr(sys, "argv", [str(each) for each in given])
        monkeypatch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert (stop.value.code or 0) == code, printed.err
        return printed, regard.load(folder)

    return command


def test_a_table_is_for_people(run):
    printed, translator = run("--sort", "entropy")
    report = report_heads(translator, PAIRS)
    assert f"Heads by entropy, 3 pairs: loss {report.whole.loss:.3f} with all of them" in printed.out
    shown = [line.split()[0] for line in printed.out.splitlines() if line.split(" ")[0].count(":") == 2]
    assert shown == [str(head) for head in report.ranked("entropy").heads]
    assert "pairs skipped, as a side is empty or longer than the model reads: 1" in printed.err


def test_json_says_the_same_to_programs(run):
    printed, translator = run("--json", "--bleu", "--sentences", 2)
    found = json.loads(printed.out)
    report = report_heads(translator, PAIRS[:2], bleu=True).ranked()
    assert found["n_pairs"] == 2
    assert [head["loss"] for head in found["heads"]] == pytest.approx([head.loss for head in report.heads])
    assert [head["bleu"] for head in found["heads"]] == [head.bleu for head in report.heads]


def test_the_text_may_be_turned(run):
    printed, translator = run("--json", "--reverse")
    turned = report_heads(translator, [(tgt, src) for src, tgt in PAIRS])
    assert json.loads(printed.out)["whole"]["loss"] == pytest.approx(turned.whole.loss)


@pytest.mark.parametrize("more", [[], ["--bleu"]])
def test_maps_are_drawn(run, more, tmp_path):
    out = tmp_path / "x.svg"
    printed, _ = run("--out", out, *more)
    assert "figure saved as" in printed.err
    assert out.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--sort", "los"], "unknown order of heads 'los': did you mean 'loss'?"),
        (["--out", "x.jpg"], "must end in .png, .svg, .pdf, got 'x.jpg'"),
    ],
)
def test_mistakes_end_in_one_line(run, args, message):
    printed, _ = run(*args, code=2)
    assert message in printed.err and "Traceback" not in printed.err
