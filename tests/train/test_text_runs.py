"""Decoders that learn from text: what they learn, how they go on, and what is refused."""

import json
import os
import re
import signal
from dataclasses import replace

import pytest
import torch

import regard
from regard.checkpoint import read_json
from regard.data.prepare import prepare
from regard.padding import BOS
from regard.plot.traces import draw_training
from regard.train.batching import prefetch
from regard.train.distributed import World
from regard.train.loop import RunStoppedError
from regard.train.run import resolve_settings
from regard.train.start import DataOptions, TrainOptions, start_run
from regard.train.state import checkpoints, read_progress
from regard.train.trainer import read_run_settings, train
from tests.train.texts import PERIOD, text_settings, write_period
from tests.train.tiny import run_training, train_until_killed

EVERYTHING = {
    "model": {"dropout": 0.2},
    "train": {"ema": 0.8, "accumulate": 2, "average": 2, "save_every": 3, "valid_every": 5, "log_every": 4},
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_period(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture(scope="module")
def learned(text, tmp_path_factory):
    """A run that knows its text by heart."""
    folder = tmp_path_factory.mktemp("learned") / "run"
    changes = {"train": {"max_steps": 60, "lr": 1e-2, "warmup": 5, "valid_every": 30, "save_every": 30, "ema": 0.8}}
    return folder, run_training(text_settings(text, changes), folder)


def test_a_text_that_repeats_itself_is_learned_by_heart(learned):
    folder, outcome = learned
    assert set(outcome.best) == {"loss"} and outcome.best["loss"] < 0.2
    writer = regard.load(folder)
    greedy = replace(writer.settings, method="greedy", max_extra=40)
    assert "".join(writer.stream(PERIOD[:5], greedy)) == (PERIOD * 3)[5:45], "far past what it looks back at"
    assert writer.log_likelihood(PERIOD * 3).perplexity < 1.3


def test_no_translations_are_spoken_of(learned):
    folder, outcome = learned
    log = (folder / "log.txt").read_text(encoding="utf-8")
    assert "BLEU" not in log and "chrF" not in log
    assert re.search(r"step 60: validation loss 0\.\d+, perplexity 1\.\d+\n", log)
    assert "    → " in log, "it shows how it goes on instead"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {"step", "valid_loss"} in [set(row) for row in rows]
    assert set(read_json(folder / "model" / "scores.json")["valid"]) == {"loss"}
    assert len(draw_training(outcome.progress).axes) == 1


def test_batches_are_windows_shifted_by_one(text, tmp_path):
    made = text_settings(text)
    dataset = prepare(made.data, made.text, tmp_path, lambda expected: None, seed=0)
    stored = dataset.train.ids.tolist()
    groups = prefetch(dataset.train, made, World(), torch.device("cpu"), (0, 0))
    starts = set()
    for group, _ in zip(groups, range(len(dataset.train) // 10 + 1), strict=False):
        batch = group.parts[0].batch(torch.device("cpu"), group.n_tokens)
        assert (
            batch.tgt.token_mask.all()
            and batch.tgt.labels.shape[1] == 24
            and group.n_tokens == batch.tgt.labels.numel()
        )
        assert batch.src.ids.shape[1] == 1, "the source costs one slot"
        assert (batch.tgt.inputs[:, 0] == BOS).all()
        assert torch.equal(batch.tgt.inputs[:, 1:], batch.tgt.labels[:, :-1])
        for window in batch.tgt.labels.tolist():
            assert any(stored[at : at + 24] == window for at in range(22)), "no BOS and no EOS inside"
        starts |= {tuple(window) for window in batch.tgt.labels.tolist()}
    assert len(starts) > 1


def assert_same_end(run, peaceful):
    for name in ("model/model.safetensors", "checkpoints/step-00000012/state.safetensors"):
        assert (run / name).read_bytes() == (peaceful / name).read_bytes()
    one, other = (read_progress(each / "checkpoints/step-00000012/progress.json") for each in (run, peaceful))
    assert replace(one, seconds=0.0, losses=[]) == replace(other, seconds=0.0, losses=[])


def test_a_run_that_was_stopped_or_killed_goes_on_as_if_it_had_not(text, tmp_path):
    made = text_settings(text, EVERYTHING)
    run_training(made, tmp_path / "peaceful")

    def at(step, number):
        return lambda progress: os.kill(os.getpid(), number) if progress.step == step else None

    with pytest.raises(RunStoppedError, match="stopped by SIGTERM"):
        train(made, tmp_path / "run", at(5, signal.SIGTERM))
    assert train_until_killed(read_run_settings(tmp_path / "run"), tmp_path / "run", 10) == -signal.SIGKILL
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1].name == "step-00000009"
    run_training(read_run_settings(tmp_path / "run"), tmp_path / "run")
    assert_same_end(tmp_path / "run", tmp_path / "peaceful")


def test_documents_begin_and_end(tmp_path):
    lines = [
        f"{name}\t{name} is {colour}." for name in ("ann", "bob", "cid", "dot") for colour in ("red", "blue", "tan")
    ]
    (tmp_path / "a.tsv").write_text("\n".join(lines))
    (tmp_path / "t.tsv").write_text("ann\tann is red.\n")
    data = {"form": "documents", "train": [str(tmp_path / "a.tsv")], "test": [str(tmp_path / "t.tsv")]}
    changes = {
        "train": {"max_steps": 80, "max_epochs": "none", "lr": 1e-2, "valid_every": 40, "r_drop": 0.1},
        "model": {"dropout": 0.05},
    }
    run_training(text_settings(tmp_path / "a.tsv", {"data": data}, changes), tmp_path / "run")
    writer = regard.load(tmp_path / "run")
    for seed in range(3):
        written = "".join(writer.stream("bob\n", replace(writer.settings, seed=seed, temperature=0.5, max_extra=40)))
        assert re.fullmatch(r"bob is \w+\.", written), written
    scores = read_json(tmp_path / "run" / "model" / "scores.json")
    torch.testing.assert_close(
        scores["test"]["loss"], writer.log_likelihood("ann\nann is red.").loss, rtol=1e-4, atol=1e-4
    )


def test_a_decoder_learns_on(learned, text, tmp_path):
    made = start_run(
        tmp_path / "run",
        DataOptions((str(text),), (), (), None, None),
        TrainOptions(init=str(learned[0]), overrides=("train.max_steps=2", "train.valid_every=1", "train.device=cpu")),
        resume=False,
        overwrite=False,
    )
    assert (made.data.form, made.train.stop_on, made.model.family) == ("text", "loss", "decoder")
    outcome = run_training(made, tmp_path / "run")
    assert outcome.progress.valid[0]["step"] == 0 and outcome.progress.valid[0]["loss"] < 0.2


def test_the_language_of_a_text_is_guessed(tmp_path):
    (tmp_path / "a.txt").write_text("床前明月光\n疑是地上霜\n" * 30)
    sources = DataOptions((str(tmp_path / "a.txt"),), (), (), None, None)
    made = start_run(
        tmp_path / "run", sources, TrainOptions(family="decoder", preset="tiny"), resume=False, overwrite=False
    )
    assert (made.data.src_lang, made.data.tgt_lang) == ("zh", "zh")
    assert made.text.kind == "characters" and made.decode.method == "sample"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"form": "pairs"}}, r"got 'decoder' and 'pairs': set data.form to \"text\" or \"documents\""),
        ({"model": {"family": "transformer"}}, r"got 'transformer' and 'text': set model.family to \"decoder\""),
        ({"train": {"stop_on": "bleu"}}, "train.stop_on must be 'loss' for a decoder, .*, got 'bleu'"),
        ({"train": {"vectors": "cbow"}}, "train.vectors must be 'random' for a decoder, got 'cbow'"),
    ],
)
def test_what_a_decoder_cannot_learn_from(text, changes, message):
    with pytest.raises(ValueError, match=message):
        resolve_settings(text_settings(text, changes), torch.device("cpu"))


def test_a_decoder_has_no_encoder_layers(text):
    made = text_settings(text, {"model": {"n_encoder_layers": 3}})
    assert resolve_settings(made, torch.device("cpu")).model.n_encoder_layers == 0


def test_a_loss_that_is_no_number_is_placed(text, tmp_path):
    changes = {"train": {"lr": 1e30, "clip": "none", "schedule": "constant", "warmup": 0}}
    with pytest.raises(
        ValueError, match=r"not finite (\(\w+\) at|after) step \d+ \(epoch 0, batch \d+, first pair \d+: '.*\w{2}"
    ):
        run_training(text_settings(text, changes), tmp_path / "run")
