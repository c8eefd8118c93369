"""A model that learns on: what it keeps, what it may change, and that it goes on exactly after a stop."""

import json
import os
import shutil
import signal
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from regard.checkpoint import read_json
from regard.checkpoint.weights import Form, copy_model, load_model
from regard.train.initialise import LR_SHARE
from regard.train.loop import RunStoppedError
from regard.train.start import DataOptions, TrainOptions, start_run
from regard.train.state import checkpoints, read_progress
from regard.train.trainer import read_run_settings, train
from tests.train.tiny import reversals, run_training, trained_once, write_tsv

SETS = ("train.max_steps=12", "train.valid_every=4", "train.save_every=5", "train.lr=0.01", "train.device=cpu")
SETS = (*SETS, "train.batch_tokens=256", "model.dropout=0.3", "train.log_every=4", "train.stop_on=loss")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return trained_once(tmp_path_factory)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Two hundred pairs of another kind: nothing is reversed."""
    same = [(src, src) for src, _ in reversals(200, seed=31)]
    return write_tsv(tmp_path_factory.mktemp("text") / "mine.tsv", same)


def begin(text, out, init, *sets, **expected):
    sources = DataOptions((str(text),), (), (), None, None)
    return start_run(
        out, sources, TrainOptions(overrides=sets, init=str(init), **expected), resume=False, overwrite=False
    )


@pytest.fixture(scope="module")
def tuned(trained, text, tmp_path_factory):
    out = tmp_path_factory.mktemp("tuned") / "run"
    run_training(begin(text, out, trained, *SETS), out)
    return out


def test_the_model_gets_better_at_the_new_text_from_its_first_validation_on(tuned):
    progress = read_progress(checkpoints(tuned / "checkpoints")[-1] / "progress.json")
    steps, losses = [row["step"] for row in progress.valid], [row["loss"] for row in progress.valid]
    assert steps == [0, 4, 8, 12]
    assert losses[-1] < losses[0]
    assert losses == sorted(losses, reverse=True)


def test_tokenizer_sizes_and_languages_are_the_model_s_own(trained, tuned):
    assert (tuned / "model" / "tokenizer.model").read_bytes() == (trained / "model" / "tokenizer.model").read_bytes()
    old, new = load_model(trained).settings, load_model(tuned).settings
    assert new.text == old.text
    assert new.model == replace(old.model, dropout=0.3)
    assert (new.data.src_lang, new.data.tgt_lang) == (old.data.src_lang, old.data.tgt_lang)
    assert new.train.init == str(trained)


def test_the_model_that_is_learned_from_is_where_it_begins(trained, text, tmp_path):
    out = tmp_path / "run"
    made = begin(text, out, trained, *SETS, "train.max_steps=1", "train.lr=1e-9", "train.warmup=0")
    run_training(made, out)
    before, after = (load_file(each / "model" / "model.safetensors") for each in (trained, out))
    assert max(float((before[name] - after[name]).abs().max()) for name in before) < 1e-7


def test_the_learning_rate_is_a_share_of_the_model_s(trained, tuned, text, tmp_path):
    made = begin(text, tmp_path / "run", trained)
    assert made.train.lr == pytest.approx(LR_SHARE * read_run_settings(trained).train.lr)
    again = begin(text, tmp_path / "run", tuned)
    assert again.train.lr == 0.01  # it was a share already
    assert begin(text, tmp_path / "run", trained, "train.lr=0.5").train.lr == 0.5


def test_a_run_that_was_stopped_goes_on_exactly_without_the_model_that_it_began_with(trained, tuned, text, tmp_path):
    init = shutil.copytree(trained / "model", tmp_path / "init")
    out = tmp_path / "run"

    def stop(progress):
        if progress.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(RunStoppedError):
        train(begin(text, out, init, *SETS), out, stop)
    shutil.rmtree(init)
    run_training(read_run_settings(out), out)
    for name in ("model/model.safetensors", "model/tokenizer.model", "checkpoints/step-00000012/state.safetensors"):
        assert (out / name).read_bytes() == (tuned / name).read_bytes()


def test_a_small_form_can_learn_on(trained, text, tmp_path):
    copy_model(trained, tmp_path / "int8", Form("int8", 4 / 1024))
    run_training(begin(text, tmp_path / "run", tmp_path / "int8", *SETS, "train.max_steps=2"), tmp_path / "run")
    assert read_json(tmp_path / "run" / "model" / "scores.json")["valid"]


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        (
            {"overrides": ("model.d_model=32",)},
            r"keeps the model's model.d_model, 16, got 32: leave it out, or start without --init",
        ),
        (
            {"overrides": ("model.position.name=rotary",)},
            r"keeps the model's model.position, .*sinusoidal.*got .*rotary",
        ),
        ({"overrides": ("text.vocab_size=99",)}, r"keeps the model's text.vocab_size, 32, got 99"),
        ({"preset": "tiny"}, r"brings its own sizes and parts, got --preset tiny: leave one out"),
        ({"family": "recurrent"}, r"got --family recurrent"),
        ({"overrides": ("train.vectors=cbow",)}, r"train.vectors initialises a new model, got 'cbow'"),
        ({"overrides": ("train.init=other",)}, r"train.init is set by --init, got 'other' as a setting"),
    ],
)
def test_what_contradicts_the_model_is_refused(trained, text, tmp_path, expected, message):
    sources = DataOptions((str(text),), (), (), None, None)
    with pytest.raises(ValueError, match=message):
        start_run(tmp_path / "run", sources, TrainOptions(init=str(trained), **expected), resume=False, overwrite=False)
    assert not (tmp_path / "run").exists()


def test_a_model_that_is_not_there_is_named(text, tmp_path):
    with pytest.raises(ValueError, match=r"zh-fr: there is no such model folder"):
        begin(text, tmp_path / "run", "zh-fr")


def test_a_setting_alone_begins_with_no_model(text, tmp_path):
    sources = DataOptions((str(text),), (), (), None, None)
    with pytest.raises(ValueError, match=r"train.init is set by --init, got 'zh-en' as a setting: use --init"):
        start_run(
            tmp_path / "run", sources, TrainOptions(overrides=("train.init=zh-en",)), resume=False, overwrite=False
        )


def test_a_run_that_goes_on_keeps_its_beginning(tuned, text):
    sources = DataOptions((str(text),), (), (), None, None)
    with pytest.raises(ValueError, match=r"keeps its train.init, .*trained'?, got 'zh-en'"):
        start_run(tuned, sources, TrainOptions(init="zh-en"), resume=True, overwrite=False)
    same = TrainOptions(init=read_run_settings(tuned).train.init)
    assert start_run(tuned, sources, same, resume=True, overwrite=False) == read_run_settings(tuned)


def test_languages_may_be_said(trained, text, tmp_path):
    sources = DataOptions((str(text),), (), (), "wuu", None)
    made = start_run(tmp_path / "run", sources, TrainOptions(init=str(trained)), resume=False, overwrite=False)
    assert (made.data.src_lang, made.data.tgt_lang) == ("wuu", "tgt")
    assert json.loads((trained / "config.json").read_text())["settings"]["data"]["src_lang"] == "src"
