"""The command `regard align`, run as a user runs it."""

import json
import sys

import pytest
import torch

import regard
from regard.align import align
from regard.align.heads import load_heads
from regard.checkpoint.weights import Checkpoint, Form, copy_model, save_model
from regard.cli import main
from regard.config import DataSettings, ModelSettings, Settings
from regard.zoo import present
from tests.cli.test_trace import SIZES
from tests.pipeline.test_translator import TOKENIZER
from tests.trace.makers import make_model

PAIRS = [("你好世界", "hello bad"), ("a b", "c"), ("", "x"), ("世界", "face")]


def saved(path, **languages):
    """Saves a random model."""
    made = Settings(model=ModelSettings(tie="none", **SIZES), data=DataSettings(**languages))
    save_model(path, Checkpoint(make_model(dtype=torch.float32), TOKENIZER, made), {})
    return path


@pytest.fixture
def models(tmp_path):
    """Saves a model and its reverse."""
    return saved(tmp_path / "zh-en", src_lang="zh", tgt_lang="en"), saved(
        tmp_path / "en-zh", src_lang="en", tgt_lang="zh"
    )


@pytest.fixture
def run(capsys, monkeypatch, models, tmp_path):
    """Runs the command in this process and gives what it printed."""
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS), encoding="utf-8")

    def command(*args, code=0):
        given = ["regard", "align", "--data", data, "--model", models[0], *args]
        monkeypatch.setattr(sys, "argv", [str(each) for each in given])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert (stop.value.code or 0) == code, printed.err
        return printed

    return command


def test_links_are_one_line_for_each_pair(run, models):
    printed = run()
    expected = align(regard.load(models[0]), PAIRS)
    assert printed.out.splitlines() == [" ".join(f"{i}-{j}" for i, j in pair.links) for pair in expected.pairs]
    assert printed.out.splitlines()[2] == ""
    assert f"{expected.forward.heads}, by agreement with the source words that target words" in printed.err
    assert "on 3 pairs" in printed.err and "mean of all heads 0." in printed.err
    assert "first head of the last layer 0." in printed.err
    assert "pairs without links, as a side is empty or longer than a model reads: 1" in printed.err


def test_a_reverse_model_takes_part(run, models):
    printed = run("--reverse-model", models[1], "--symmetrise", "union", "--json")
    expected = align(regard.load(models[0]), PAIRS, regard.load(models[1]), symmetrise="union")
    found = json.loads(printed.out)
    assert [pair["links"] for pair in found["pairs"]] == [[[*link] for link in pair.links] for pair in expected.pairs]
    assert found["backward"]["heads"] == expected.backward.heads
    assert printed.err.count("by agreement with the reverse model on 3 pairs") == 2
    assert found["pairs"][0]["src"] == [*"你好世界"] and found["pairs"][0]["tgt"] == ["hello", "bad"]


def test_gold_links_choose_and_are_compared_with(run, tmp_path):
    gold = tmp_path / "gold.pharaoh"
    gold.write_text("0-0 1-0 2?1 3-1\n0-0 1?0\n\n0-0 1-0\n")
    said = run("--gold", gold).err
    assert "by alignment error rate on the gold links on 3 pairs" in said
    assert "alignment error rate " in said and "recall" in said and "% on 4 pairs" in said
    gold.write_text("0-0\n\n\n0:0\n")
    assert f"{gold}, line 4: a link must be written i-j" in run("--gold", gold, code=2).err


def test_links_go_to_a_file_and_a_pair_is_drawn(run, tmp_path):
    lines = run("--heads", "cross:0:1:read").out
    out = tmp_path / "links.txt"
    assert run("--heads", "cross:0:1:read", "--out", out).out == ""
    assert out.read_text() == lines
    drawn = tmp_path / "x.svg"
    printed = run("--heads", "cross:0:1:read", "--out", drawn, "--pair", 4)
    assert printed.out == lines and "cross:0:1:read, as told" in printed.err
    assert drawn.read_bytes().startswith(b"<?xml")


def test_heads_are_kept_and_used_again(run, models, tmp_path):
    assert load_heads(models[0]) is None
    first = run("--keep", "--reverse-model", models[1])
    assert first.err.count("heads stored in") == 2
    kept = json.loads((models[0] / "alignment.json").read_text())
    assert kept.keys() == {"heads", "by", "value", "n_pairs", "on", "written"}
    assert kept["heads"] == load_heads(models[0]) and kept["on"] == f"{tmp_path.name}/pairs.tsv"
    again = run("--reverse-model", models[1])
    assert again.out == first.out
    assert again.err.count("as stored with the model") == 2
    assert "by agreement" in run("--reverse-model", models[1], "--heads", "measured").err
    copy_model(models[0], tmp_path / "copy", Form("int8"))
    assert load_heads(tmp_path / "copy") == kept["heads"]
    (models[0] / "alignment.json").write_text('{"heads": 3}')
    assert "this must name heads, such as cross:1:3:read, got 3" in run(code=2).err


@pytest.mark.parametrize(
    ("kept", "heads", "said"),
    [
        ("cross:0:1:say", "cross:0:1:say", "those of cross:0:1:say, which aligns best"),
        ("cross:0:1:read", "cross:all:all:say", "means over all 2 heads of cross attention"),
    ],
)
def test_a_trace_uses_kept_heads_whose_rows_write_a_word(run, models, capsys, monkeypatch, kept, heads, said):
    run("--keep", "--heads", kept)
    for more in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["regard", "trace", "你好世界", "--model", str(models[0]), *more])
        with pytest.raises(SystemExit):
            main()
        out = capsys.readouterr().out
        if more:
            assert json.loads(out)["heads"] == heads
        else:
            assert f"shares are {said}; weights @ v" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--heads", "cross:0:7"], "the head of cross attention must lie in 0 … 1, got 7"),
        (["--out", "x.svg", "--pair", "9"], "--pair must be one of the 4 pairs, got 9"),
        (["--out", "x.svg", "--pair", "3"], "a pair must have words, and no more than the models read"),
        (["--out", "nowhere/x.svg"], "the folder for 'x.svg' does not exist: nowhere"),
        (["--units", "word"], "unknown way to find words 'word'"),
        (["--symmetrise", "unions"], "unknown way to symmetrise 'unions': did you mean 'union'?"),
        (["--reverse-model", "zh"], "there is no such model folder"),
    ],
)
def test_mistakes_end_in_one_line(run, args, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*args, code=2)
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_reverse_model_must_be_one(run, models):
    assert "must be one en → zh, got zh → en" in run("--reverse-model", models[0], code=2).err


def test_bundled_models_bring_their_reverse(capsys, monkeypatch, tmp_path):
    if "zh-en" not in {*present()}:
        pytest.skip("needs the bundled models")
    data = tmp_path / "pairs.tsv"
    data.write_text("我有两个哥哥。\tI have two older brothers.\n", encoding="utf-8")
    for more, names in (([], ("zh-en: cross:", "en-zh: cross:")), (["--reverse-model", "none"], ("zh-en: cross:",))):
        monkeypatch.setattr(sys, "argv", ["regard", "align", "--data", str(data), *more])
        with pytest.raises(SystemExit):
            main()
        said = capsys.readouterr().err
        assert said.count(": cross:") == len(names) and all(name in said for name in names)
