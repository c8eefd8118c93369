"""Runs as a whole: what they keep, when they stop, how they go on, and what a failure leaves."""

import json
import math
import os
import shutil
import signal
import subprocess
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import regard.checkpoint.weights
import regard.train.loop
import regard.train.step
from regard.checkpoint import read_json
from regard.checkpoint.weights import load_model
from regard.config import Settings
from regard.device import find_device
from regard.train.loop import RunStoppedError
from regard.train.run import resolve_settings
from regard.train.start import DataOptions, TrainOptions, start_run
from regard.train.state import average_run, average_states, checkpoints, read_progress
from regard.train.trainer import read_run_settings, train
from regard.train.validate import Validation
from tests.train.tiny import make_settings, reversals, run_training, train_until_killed, write_tsv

EVERYTHING = {
    "model": {"dropout": 0.2},
    "train": {"ema": 0.8, "accumulate": 2, "average": 2, "save_every": 3, "valid_every": 5, "log_every": 4},
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_tsv(tmp_path_factory.mktemp("text") / "pairs.tsv", reversals(300, seed=5))


@pytest.fixture(scope="module")
def peaceful(text, tmp_path_factory):
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("peaceful") / "run"
    run_training(make_settings(text, EVERYTHING), folder)
    return folder


def state_of(run):
    return load_file(checkpoints(run / "checkpoints")[-1] / "state.safetensors")


def files_of(run):
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def assert_same_end(run, peaceful):
    for name in ("model/model.safetensors", "checkpoints/step-00000012/state.safetensors"):
        assert (run / name).read_bytes() == (peaceful / name).read_bytes()
    one, other = (read_progress(each / "checkpoints/step-00000012/progress.json") for each in (run, peaceful))
    assert replace(one, seconds=0.0, losses=[]) == replace(other, seconds=0.0, losses=[])
    torch.testing.assert_close(torch.tensor(one.losses), torch.tensor(other.losses))


def at_step(step, action):
    """Act when the validation of a step is drawn."""
    return lambda progress: action() if progress.step == step else None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_was_asked_to_stop_goes_on_as_if_it_had_not(text, peaceful, tmp_path, number):
    stop = at_step(5, lambda: os.kill(os.getpid(), number))
    with pytest.raises(RunStoppedError, match=f"stopped by {number.name}"):
        train(make_settings(text, EVERYTHING), tmp_path / "run", stop)
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1].name == "step-00000005"
    run_training(read_run_settings(tmp_path / "run"), tmp_path / "run")
    assert_same_end(tmp_path / "run", peaceful)


def test_a_second_signal_stops_at_once(text, tmp_path):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(RunStoppedError, match="SIGTERM"):
        train(make_settings(text), tmp_path / "run", at_step(8, twice))
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1].name == "step-00000004"


def test_a_run_that_was_killed_goes_on_as_if_it_had_not(text, peaceful, tmp_path):
    for step in (5, 10):
        assert train_until_killed(make_settings(text, EVERYTHING), tmp_path / "run", step) == -signal.SIGKILL
    run_training(read_run_settings(tmp_path / "run"), tmp_path / "run")
    assert_same_end(tmp_path / "run", peaceful)
    assert recorded(tmp_path / "run") == recorded(peaceful), "a step that was taken twice is recorded once"


def recorded(run):
    """Return what was measured at which steps, in their order."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], sorted(row)) for row in rows]


def test_a_run_that_is_done_stays_as_it_is(peaceful, tmp_path):
    run = shutil.copytree(peaceful, tmp_path / "run")
    outcome = run_training(read_run_settings(run), run)
    assert outcome.progress.step == 12
    assert_same_end(run, peaceful)


def test_ctrl_c_while_the_text_is_read_leaves_a_run_to_go_on_with(text, tmp_path, monkeypatch):
    def interrupted(*_, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(RunStoppedError, match="SIGINT"):
        patch.setattr("regard.train.trainer.prepare", interrupted)
        run_training(make_settings(text), tmp_path / "run")
    assert run_training(read_run_settings(tmp_path / "run"), tmp_path / "run").progress.step == 12


def test_the_running_mean_is_what_is_judged_and_saved(text, tmp_path):
    run_training(make_settings(text, {"train": {"ema": 0.8, "stop_on": "loss", "max_steps": 8}}), tmp_path / "run")
    state, saved = state_of(tmp_path / "run"), load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert read_json(tmp_path / "run" / "model" / "scores.json")["step"] == 8
    for name, tensor in saved.items():
        torch.testing.assert_close(tensor, state[f"ema.{name}"], rtol=0, atol=0)
        assert not torch.equal(tensor, state[f"model.{name}"])


def test_the_optimiser_comes_back_with_all_that_it_remembers(peaceful):
    state = state_of(peaceful)
    n = sum(name.startswith("model.") for name in state)
    for key in ("step", "exp_avg", "exp_avg_sq"):
        assert sum(name.startswith(f"adam.{key}.") for name in state) == n
    assert {float(value) for name, value in state.items() if name.startswith("adam.step.")} == {12.0}


def test_only_the_newest_checkpoints_are_kept(text, tmp_path):
    run_training(make_settings(text, {"train": {"save_every": 2, "keep": 2}}), tmp_path / "run")
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-00000010", "step-00000012"]


def judged_by(monkeypatch, values):
    """Replace validation by given losses and scores, which repeat their last."""
    left = list(values)

    def fake(*_):
        loss, bleu = left.pop(0) if len(left) > 1 else left[0]
        return Validation(loss, bleu, bleu, [])

    monkeypatch.setattr(regard.train.loop, "validate", fake)
    monkeypatch.setattr("regard.train.trainer.validate", fake)


@pytest.mark.parametrize(
    ("stop_on", "best_step"),
    [("bleu", 3), ("loss", 5)],  # the third and the fifth validation are the best; three more are not
)
def test_a_run_stops_when_it_gets_no_better(text, tmp_path, monkeypatch, stop_on, best_step):
    judged_by(monkeypatch, [(5.0, 1.0), (4.0, 2.0), (3.0, 9.0), (2.5, 9.0), (2.0, 8.0), (2.1, 8.5)])
    changes = {"stop_on": stop_on, "patience": 3, "valid_every": 1, "max_steps": 30}
    outcome = run_training(make_settings(text, {"train": changes}), tmp_path / "run")
    assert outcome.progress.best_step == best_step
    assert outcome.progress.step == best_step + 3
    assert outcome.reason == f"no improvement in 3 validations, the best was at step {best_step}"
    assert read_json(tmp_path / "run" / "model" / "scores.json")["step"] == best_step


@pytest.mark.parametrize(("mean", "remaining"), [(9.0, True), (1.0, False)])
def test_the_mean_of_checkpoints_is_kept_if_it_is_better(text, tmp_path, monkeypatch, mean, remaining):
    judged_by(monkeypatch, [(3.0, 4.0), (3.0, 5.0), (3.0, 3.0), (3.0, mean)])
    run_training(make_settings(text, {"train": {"average": 2}}), tmp_path / "run")
    scores = read_json(tmp_path / "run" / "model" / "scores.json")
    assert scores["valid"]["bleu"] == (9.0 if remaining else 5.0)
    places = checkpoints(tmp_path / "run" / "checkpoints")
    expected = average_states(places[-2:]) if remaining else average_states([places[1]])
    saved = load_file(tmp_path / "run" / "model" / "model.safetensors")
    torch.testing.assert_close(saved, expected, rtol=0, atol=0)


def test_a_run_can_be_averaged_afterwards(peaceful, tmp_path):
    assert average_run(peaceful, tmp_path / "mean", 2) == 2
    expected = average_states(checkpoints(peaceful / "checkpoints")[-2:])
    torch.testing.assert_close(load_file(tmp_path / "mean" / "model.safetensors"), expected, rtol=0, atol=0)
    with pytest.raises(ValueError, match="mean: the folder exists already"):
        average_run(peaceful, tmp_path / "mean", 2)
    with pytest.raises(ValueError, match=r"averaging needs 1 or more checkpoints, got 0 \(last 0\)"):
        average_run(peaceful, tmp_path / "other", 0)


def test_a_run_ends_when_its_minutes_are_over(text, tmp_path):
    made = make_settings(text, {"train": {"max_steps": 10**6, "max_minutes": 0.01, "schedule": "cosine", "warmup": 1}})
    outcome = run_training(made, tmp_path / "run")
    assert outcome.reason == "all 0.01 minutes are over"
    assert 0.6 <= outcome.progress.seconds < 6
    assert 0 < outcome.progress.step < 10**5


def test_one_source_may_be_translated_either_way(text, tmp_path):
    change = {"data": {"reverse": True}, "train": {"max_steps": 1}}
    run_training(make_settings(text, change), tmp_path / "run")
    pairs = [line.split("\t") for line in (tmp_path / "run/data/valid.tsv").read_text().splitlines()]
    assert {(tgt, src) for src, tgt in pairs} <= set(reversals(300, seed=5))


def test_a_named_tokenizer_is_used(text, peaceful, tmp_path):
    made = make_settings(text, {"text": {"tokenizer": str(peaceful / "model"), "vocab_size": 20}})
    run_training(replace(made, train=replace(made.train, max_steps=1)), tmp_path / "run")
    saved = [(run / "model" / "tokenizer.model").read_bytes() for run in (peaceful, tmp_path / "run")]
    assert saved[0] == saved[1]


@pytest.mark.parametrize("good_steps", [2, 6])
def test_a_loss_that_is_no_number_stops_the_run(text, tmp_path, monkeypatch, good_steps):
    poison_after(monkeypatch, good_steps)
    with pytest.raises(
        ValueError, match=rf"the loss is not finite \(nan\) at step {good_steps + 2} \(epoch 0, batch"
    ) as error:
        run_training(make_settings(text, {"train": {"valid_every": 100}}), tmp_path / "run")
    if good_steps < 4:
        assert "start again" in str(error.value)
        assert not (tmp_path / "run").exists()
    else:
        assert "step-00000004, is kept" in str(error.value)
        assert all(tensor.isfinite().all() for tensor in state_of(tmp_path / "run").values())


@pytest.mark.parametrize("also", ["valid_every", "save_every"])
def test_parameters_that_are_no_numbers_are_not_saved(text, tmp_path, monkeypatch, also):
    """The loss before a step may be a number when the parameters after it are none."""
    poison_after(monkeypatch, 7)
    with pytest.raises(ValueError, match=r"the parameters are not finite after step 8 .*step-00000004, is kept"):
        run_training(make_settings(text, {"train": {"valid_every": 100, "save_every": 4, also: 4}}), tmp_path / "run")
    assert [path.name for path in checkpoints(tmp_path / "run" / "checkpoints")] == ["step-00000004"]
    assert all(tensor.isfinite().all() for tensor in state_of(tmp_path / "run").values())


def poison_after(monkeypatch, good_steps):
    """Let the step after some good ones write NaN into a row of a table."""
    real, taken = regard.train.step.run_step, []

    def step(learner, *rest):
        outputs = real(learner, *rest)
        taken.append(outputs)
        if len(taken) > good_steps:
            with torch.no_grad():
                next(learner.parameters()).fill_(math.nan)
        return outputs

    monkeypatch.setattr(regard.train.step, "run_step", step)


def test_a_checkpoint_that_cannot_be_written_leaves_the_last_good_one(text, peaceful, tmp_path, monkeypatch):
    real, states = regard.checkpoint.weights.save_file, []

    def full(tensors, path, notes):
        states.extend([path] * (path.name == "state.safetensors"))
        if len(states) == 2:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        real(tensors, path, notes)

    with monkeypatch.context() as patch:
        patch.setattr(regard.checkpoint.weights, "save_file", full)
        message = r"\(.*No space left on device: '.*step-00000006'\); step-00000003 is the last good checkpoint"
        with pytest.raises(ValueError, match=message):
            run_training(make_settings(text, EVERYTHING), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000003"]
    run_training(read_run_settings(tmp_path / "run"), tmp_path / "run")
    assert_same_end(tmp_path / "run", peaceful)


@pytest.fixture
def mounted(tmp_path):
    """Mount a small disk of its own, where that is allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
        if done.returncode:
            pytest.skip("mounting a disk is not allowed here")
        return folder

    yield mount
    subprocess.run(["umount", str(folder)], capture_output=True)


def test_a_full_disk_leaves_the_last_good_checkpoint(text, mounted):
    run = mounted("size=460k") / "run"
    with pytest.raises(ValueError, match=r"run: the run cannot be written \(.*[Nn]o space.*--resume"):
        run_training(make_settings(text, {"train": {"max_steps": 40, "keep": 40}}), run)
    places = checkpoints(run / "checkpoints")
    assert len(places) >= 1
    assert all(path in places for path in (run / "checkpoints").iterdir())
    made = read_run_settings(run)
    for place in places[:-1]:
        shutil.rmtree(place)
    outcome = run_training(replace(made, train=replace(made.train, keep=1, max_steps=16)), run)
    assert outcome.progress.step == 16


def test_a_folder_that_cannot_be_written_is_said_so(text, mounted):
    disk = mounted("ro,size=64k")
    with pytest.raises(ValueError, match=r"the run cannot be written \(.*Read-only file system"):
        run_training(make_settings(text), disk / "run")


def sources(text, **changes):
    return DataOptions(
        **{"train": (str(text),), "valid": (), "test": (), "src_lang": "src", "tgt_lang": "tgt", **changes}
    )


SAID = TrainOptions("tiny", "transformer")


def test_an_existing_run_is_not_overwritten_unless_told(text, tmp_path):
    (tmp_path / "run").mkdir()
    start_run(tmp_path / "run", sources(text), SAID, resume=False, overwrite=False)  # an empty folder may be used
    (tmp_path / "run" / "mine.txt").touch()
    with pytest.raises(ValueError, match="run: the folder is not empty: --resume continues"):
        start_run(tmp_path / "run", sources(text), SAID, resume=False, overwrite=False)
    assert (tmp_path / "run" / "mine.txt").exists()
    with pytest.raises(ValueError, match="no run to resume here"):
        start_run(tmp_path / "run", sources(text), SAID, resume=True, overwrite=False)
    with pytest.raises(ValueError, match="exclude each other"):
        start_run(tmp_path / "run", sources(text), SAID, resume=True, overwrite=True)
    start_run(tmp_path / "run", sources(text), SAID, resume=False, overwrite=True)
    assert (tmp_path / "run" / "mine.txt").exists()  # it is not of a run


def test_languages_are_told_by_the_text_whichever_way_it_is_read(tmp_path):
    text = write_tsv(tmp_path / "pairs.tsv", [("你好", "hello"), ("再见", "bye")])
    lines = replace(SAID, overrides=())
    for sets, languages in (((), ("zh", "tgt")), (("data.reverse=true",), ("src", "zh"))):
        made = start_run(
            tmp_path / "run", sources(text, src_lang=None, tgt_lang=None), replace(lines, overrides=sets), False, False
        )
        assert (made.data.src_lang, made.data.tgt_lang) == languages


def test_a_run_goes_on_with_its_own_settings_but_for_what_is_said(peaceful, text):
    same = start_run(peaceful, sources(text), SAID, resume=True, overwrite=False)
    assert same == read_run_settings(peaceful)
    lines = TrainOptions("small", "transformer", overrides=("train.lr=0.5", "model.d_model=16"))
    assert start_run(peaceful, sources(text), lines, resume=True, overwrite=False).train.lr == 0.5
    with pytest.raises(ValueError, match=r"keeps its model.d_model, 16, got 32"):
        start_run(peaceful, sources(text), replace(SAID, overrides=("model.d_model=32",)), resume=True, overwrite=False)
    with pytest.raises(ValueError, match=r"keeps its data.train, .*got \('other.tsv',\)"):
        start_run(peaceful, sources("other.tsv"), SAID, resume=True, overwrite=False)


def test_a_team_that_was_started_anew_goes_on_with_its_own_run_alone(peaceful, text, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    table = [f"{path}={value}" for path, value in flat(read_json(peaceful / "config.json")["settings"])]
    lines = replace(SAID, overrides=tuple(table))
    for overwrite in (False, True):
        assert start_run(peaceful, sources(text), lines, False, overwrite) == read_run_settings(peaceful)
    with pytest.raises(ValueError, match="the folder is not empty"):
        start_run(peaceful, sources(text), replace(SAID, overrides=(*table, "train.seed=9")), False, False)
    assert start_run(tmp_path / "new", sources(text), lines, False, False) == read_run_settings(peaceful)


def flat(table, path=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", str(value).lower() if isinstance(value, bool) else value


def test_the_others_of_a_team_do_not_look_at_the_folder(text, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log.txt").touch()  # the leader was quicker
    start_run(tmp_path / "run", sources(text), SAID, resume=False, overwrite=True)
    assert (tmp_path / "run" / "log.txt").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_tokens": 0}, "train.batch_tokens must be 1 or more, got 0"),
        ({"accumulate": -1}, "train.accumulate must be 1 or more, got -1"),
        ({"patience": 0}, "train.patience must be 1 or more, got 0"),
        ({"max_steps": 0}, "train.max_steps must be 1 or more, got 0"),
        ({"warmup": -1}, "train.warmup and train.seed must be 0 or more, got -1 and 0"),
        ({"lr": 0.0}, "train.lr and train.clip must be positive, got 0.0 and 1.0"),
        ({"clip": -1.0}, "got 0.001 and -1.0"),
        ({"label_smoothing": 1.0}, r"train.label_smoothing must lie in \[0, 1\), got 1.0"),
        ({"ema": 1.5}, r"train.ema must lie in \[0, 1\), got 1.5"),
        ({"betas": (0.9, 1.0)}, r"train.betas\[1\] must lie in \[0, 1\), got 1.0"),
        ({"schedule": "cosine"}, "needs train.max_steps"),
        ({"max_epochs": None, "patience": None}, "a run must end"),
    ],
)
def test_what_cannot_be_learned_with_is_refused_before_any_work(changes, message):
    made = Settings()
    with pytest.raises(ValueError, match=message):
        resolve_settings(replace(made, train=replace(made.train, **changes)), torch.device("cpu"))


@pytest.mark.parametrize(
    ("family", "override", "said"),
    [
        ("recurrent", "model.norm=bogus", "model.norm has no meaning in the family 'recurrent', got 'bogus'"),
        ("recurrent", "model.norm_place=before", "model.norm_place has no meaning"),
        ("recurrent", "model.n_heads=4", "model.n_heads .* got 4: its attention has one head"),
        ("recurrent", "model.d_ff=64", "model.d_ff .* got 64: it has no feed-forward layers"),
        ("recurrent", "model.state_norm=bogus", "unknown model.state_norm 'bogus': valid are none, layer"),
        ("decoder", "model.state_norm=layer", "model.state_norm must be 'none' in the family 'decoder'.*'layer'"),
        ("decoder", "model.n_encoder_layers=3", "n_encoder_layers .* got 3: it has a decoder alone"),
    ],
)
def test_a_setting_that_the_family_does_not_use_is_refused(text, tmp_path, family, override, said):
    with pytest.raises(ValueError, match=said):
        start_run(tmp_path / "run", sources(text), TrainOptions("tiny", family, overrides=(override,)), False, False)


def test_what_is_left_to_the_machine_is_settled():
    made = Settings()
    assert resolve_settings(made, torch.device("cpu")).train.precision == "float32"
    apart = replace(made, text=replace(made.text, joint=False))
    assert resolve_settings(apart, torch.device("cpu")).model.tie == "target"
    assert find_device("cpu") == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"device 'cuda' needs a CUDA device, and there is none here"):
            find_device("cuda")


def cut(path):
    path.write_bytes(path.read_bytes()[:100])


def flip(path):
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["state.safetensors", "progress.json"])
@pytest.mark.parametrize("damage", [cut, flip])
def test_a_damaged_checkpoint_is_said_and_the_next_older_is_used(peaceful, tmp_path, name, damage):
    run = shutil.copytree(peaceful, tmp_path / "run")
    damage(run / "checkpoints" / "step-00000012" / name)
    run_training(read_run_settings(run), run)
    assert_same_end(run, peaceful)
    log = (run / "log.txt").read_text()
    assert "step-00000012 cannot be used, trying the next older checkpoint" in log
    assert f"step-00000012/{name}: this file is damaged, its checksum must be" in log
    assert "resuming from step 9" in log
    assert (run / "checkpoints" / "damaged-step-00000012").is_dir()


def test_a_run_whose_checkpoints_are_all_damaged_is_not_resumed(peaceful, tmp_path):
    run = shutil.copytree(peaceful, tmp_path / "run")
    for folder in checkpoints(run / "checkpoints"):
        flip(folder / "state.safetensors")
    with pytest.raises(
        ValueError, match=r"step-00000012/state.safetensors: this file is damaged, its checksum must be"
    ):
        run_training(read_run_settings(run), run)
    with pytest.raises(ValueError, match=r"step-00000009/state.safetensors: this file is damaged"):
        average_run(run, tmp_path / "mean", 2)


def test_damaged_ids_are_prepared_again_with_the_runs_tokenizer(peaceful, tmp_path):
    run = shutil.copytree(peaceful, tmp_path / "run")
    shutil.rmtree(run / "checkpoints" / "step-00000012")
    flip(run / "data" / "train" / "tgt.bin")
    run_training(read_run_settings(run), run)
    assert "preparing the text again: " in (run / "log.txt").read_text()
    assert_same_end(run, peaceful)


class TestChangedText:
    """Between stop and resume the text became another one."""

    @pytest.fixture
    def run(self, peaceful, text, tmp_path):
        """Stop a run at step 6, on a text of its own."""
        text = shutil.copy2(text, tmp_path / "pairs.tsv")
        settings = make_settings(text, EVERYTHING, {"train": {"max_steps": 6}})
        run_training(settings, tmp_path / "run")
        return tmp_path / "run"

    def resume(self, run, accept_new_data=False):
        settings = read_run_settings(run)
        longer = replace(settings, train=replace(settings.train, max_steps=8))
        return train(longer, run, lambda progress: None, accept_new_data)

    def test_another_text_is_refused_unless_it_is_accepted(self, run, tmp_path):
        text = tmp_path / "pairs.tsv"
        size = text.stat().st_size
        tokenizer = (run / "model" / "tokenizer.model").read_bytes()
        write_tsv(text, [(src.replace("a", "x"), tgt.replace("a", "x")) for src, tgt in reversals(280, seed=8)])
        kept = files_of(run)
        message = f"{text} had {size:,} bytes and has {text.stat().st_size:,}, with other contents: restore it, or"
        with pytest.raises(ValueError, match=message):
            self.resume(run)
        assert files_of(run) == kept, "nor its settings, and TensorBoard has no empty file"
        assert self.resume(run, accept_new_data=True).progress.step == 8
        assert (run / "data" / "tokenizer.model").read_bytes() == tokenizer
        assert (run / "model" / "tokenizer.model").read_bytes() == tokenizer
        assert self.resume(run).progress.step == 8  # it is this run's text now

    def test_the_same_text_with_another_time_is_the_same(self, run, tmp_path):
        os.utime(tmp_path / "pairs.tsv", ns=(1, 1))
        assert self.resume(run).progress.step == 8
        assert "is unchanged and is used again" in (run / "log.txt").read_text()


def test_a_run_without_a_model_of_its_own_loads(peaceful):
    assert load_model(peaceful).settings.train.ema == 0.8
