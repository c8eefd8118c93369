"""The command `regard trace`, run as a user runs it."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import regard
from regard.checkpoint.weights import Checkpoint, save_model
from regard.cli import main
from regard.config import DataSettings, DecodeSettings, ModelSettings, Settings
from regard.plot.tables import numbers_table, word_attention_table
from regard.plot.traces import FIGURES
from regard.terminal import print_tables
from tests.pipeline.test_translator import TOKENIZER
from tests.trace.makers import make_model

SIZES = {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 22, "n_heads": 2, "d_ff": 13, "dropout": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Saves a random model."""
    made = Settings(
        model=ModelSettings(tie="none", **SIZES),
        data=DataSettings(src_lang="zh", tgt_lang="en"),
        decode=DecodeSettings(beam=2, max_extra=4, max_ratio=0.0, retry=False),
    )
    path = tmp_path_factory.mktemp("model") / "model"
    save_model(path, Checkpoint(make_model(dtype=torch.float32), TOKENIZER, made), {})
    return path


@pytest.fixture
def run(capsys, monkeypatch, folder):
    """Runs the command in this process and gives what it printed."""

    def command(*args, text="你好世界", code=0):
        monkeypatch.setattr(sys, "argv", ["regard", "trace", text, "--model", str(folder), *map(str, args)])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert (stop.value.code or 0) == code, printed.err
        return printed

    return command


def test_a_summary_is_for_people(run, folder):
    said = run().out
    expected = regard.load(folder).translate("你好世界")[0]
    assert f"你好世界 → {expected.text}" in said
    for part in ("attended to", "Output tokens", "alternatives", "How spread", "cross"):
        assert part in said
    assert "means over all 2 heads of cross attention; weights @ v differ" in said


def test_brackets_and_colons_are_no_markup(capsys):
    words = ["[/]", ":a:", "[red]x[/red]"]
    shares = np.array([[0.2, 0.5, 0.3]])
    print_tables(word_attention_table(shares, words, ["[b]"], title="[/nothing] :b:"))
    print_tables(numbers_table(torch.tensor(shares), ["[b]"], words, "[/nothing]"))
    said = capsys.readouterr().out
    assert all(word in said for word in (*words[:2], "[red]x", "[b]", "[/nothing] :b:"))


def test_json_says_the_same_to_programs(run, folder):
    said = json.loads(run("--json", "--beam", 1).out)
    greedy = replace(regard.load(folder).settings, method="greedy", beam=1)
    assert said["output"] == regard.load(folder).translate("你好世界", greedy)[0].text
    assert said["checks"]["weights"] < 1e-5
    assert sum(share["share"] for share in said["words"][0]["looked_at"]) <= 1.0001


def test_a_trace_is_saved_and_read_again(run, tmp_path):
    out = tmp_path / "x.safetensors"
    assert "trace saved as" in run("--out", out).err
    assert regard.load_trace(out).text == "你好世界"


@pytest.mark.parametrize("figure", FIGURES)
def test_figures_are_drawn(run, figure, tmp_path):
    out = tmp_path / "x.svg"
    run("--out", out, "--figure", figure)
    assert out.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize("more", [[], ["--terms"]])
def test_one_head_is_printed_and_drawn(run, more, tmp_path):
    said = run("--head", "encoder:0:1", *more, "--out", tmp_path / "x.png").out
    assert ("the terms add up to it" in said) == bool(more)
    assert ("position–position" in said) == bool(more)
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(run("--head", "encoder:0:1", *more, "--json").out)
    assert (found["kind"], found["head"], found["keys"]) == ("encoder", 1, [*"你好世界", "</s>"])
    assert len(found["terms"]["terms"] if more else found["weights"]) == 5


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--out", "x.jpg"], "must end in .png, .svg, .pdf, got 'x.jpg'; a trace itself ends in .safetensors, a page"),
        (["--out", "nowhere/x.safetensors"], "the folder for 'x.safetensors' does not exist: nowhere"),
        (["--out", "x.png", "--figure", "tre"], "unknown figure 'tre': did you mean 'tree'?"),
        (["--head", "cross:1"], "a head must be named kind:layer:head, such as cross:1:0, got 'cross:1'"),
        (["--head", "cross:a:0"], "got 'cross:a:0'"),
        (["--head", "self:0:0"], "unknown kind of attention 'self'"),
        (["--head", "cross:1:0"], "cross layer must be 0 … 0, got 1"),
        (["--head", "cross:0:2"], "head must lie in 0 … 1 of cross layer 0, got 2"),
        (["--terms"], "--terms are those of one head, got none: add --head"),
        (["--from", "de"], "--from must be the model's own language, zh, got de"),
    ],
)
def test_mistakes_end_in_one_line(run, args, message):
    done = run(*args, code=2)
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_text_that_is_not_one_run_is_refused(run):
    assert "must have words, and no more than the model reads at once, got '  '" in run(text="  ", code=2).err
    assert "reads at once, got 90 parts" in run(text="abcdefg. " * 90, code=2).err
