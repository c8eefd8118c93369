"""One call from settings to a model in a folder."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import exp
from pathlib import Path
from typing import Any

import torch

from regard.atomic import atomic_file, ensure_folder
from regard.checkpoint import CONFIG, SCORES, model_folder, read_json, read_settings, settings_table, write_json
from regard.checkpoint.folder import load_model, save_model
from regard.checkpoint.weights import fill
from regard.config import Settings
from regard.data.dataset import Dataset
from regard.data.prepare import prepare
from regard.engine.plain import PlainEngine
from regard.pipeline.translator import Translator
from regard.score import Scores, score
from regard.train.distributed import Team, join_team, leave_team, wait
from regard.train.initialise import inherited_tokenizer
from regard.train.loop import RunStoppedError, judge, learn, save
from regard.train.progress import Watch
from regard.train.run import Run, choose_device, let_go, open_run, own, put_back, resolve
from regard.train.state import Progress, average_states, checkpoints
from regard.train.validate import text_loss, validate


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    reason: str
    progress: Progress
    best: dict[str, float]
    test: Scores | None


def train(made: Settings, folder: Path, draw: Callable[[Progress], None]) -> Outcome:
    """Prepares the text, learns until there is a reason to stop, and leaves the best model in `folder/model`."""
    device = choose_device(made.train.device)
    made = resolve(made, device)
    team = join_team(device)
    try:
        with _run_folder(folder, team):
            return _train(made, folder, team, device, draw)
    except OSError as error:
        raise ValueError(_not_written(folder, error)) from error
    except KeyboardInterrupt as error:  # while the text was prepared, or after the last step
        raise RunStoppedError(signal.SIGINT) from error
    finally:
        leave_team(team)


def _train(made: Settings, folder: Path, team: Team, device: torch.device, draw: Callable[[Progress], None]) -> Outcome:
    if team.leads:
        with atomic_file(folder / CONFIG) as draft:
            write_json(draft, {"settings": settings_table(made)})
    with Watch(folder, made.train.max_steps, team.leads, draw) as watch:
        prepared = _prepare(made, folder, team, watch)
        if team.leads:
            let_go(folder)
        run = open_run(folder, made, prepared, team, device, watch)
        _announce(run)
        if made.train.init is not None and run.progress.step == 0:
            judge(run)  # how good the model was before it learned on
        return _finish(run, learn(run))


@contextmanager
def _run_folder(folder: Path, team: Team) -> Iterator[None]:
    """Makes the run's folder; a new one in which no step was saved vanishes again if the run was a mistake."""
    if not team.leads:
        wait(team)
        yield
        return
    was_there = bool(own(folder))
    with ensure_folder(folder):
        wait(team)
        try:
            yield
        except (ValueError, OSError):
            if not was_there and not checkpoints(folder / "checkpoints"):
                put_back(folder)
            raise


def _not_written(folder: Path, error: OSError) -> str:
    """Words what to do when the disk is full, or the folder cannot be written."""
    saved = checkpoints(folder / "checkpoints")
    way_out = (
        f"{saved[-1].name} is the last good checkpoint: make room and go on with --resume" if saved else "make room"
    )
    return f"{folder}: the run cannot be written ({error}); {way_out}"


def settings_of(folder: Path) -> Settings:
    """Reads the settings that a run was started with."""
    if not (folder / CONFIG).exists():
        raise ValueError(f"{folder}: there is no run to go on with here (no {CONFIG})")
    return read_settings(folder / CONFIG)


def _prepare(made: Settings, folder: Path, team: Team, watch: Watch) -> Dataset:
    """Lets the leader prepare while the others wait, and then read what it made."""
    if not team.leads:
        wait(team)
    say, tokenizer = watch.say if team.leads else _silent, inherited_tokenizer(made, folder)
    prepared = prepare(made.data, made.text, folder, say, made.train.seed, tokenizer)
    if team.leads:
        wait(team)
    return prepared


def _announce(run: Run) -> None:
    n = sum(parameter.numel() for parameter in run.model.parameters())
    where = f"{run.device}, {run.settings.train.precision}" + (
        f", {run.team.world} processes" if run.team.world > 1 else ""
    )
    run.watch.say(f"{run.settings.model.family} with {n:,} parameters on {where}")
    if run.progress.step:
        run.watch.go_on(run.progress.step)
        run.watch.say(f"going on from step {run.progress.step}")


def _finish(run: Run, reason: str) -> Outcome:
    """Judges the last step, tries the mean of the last checkpoints, and scores the test text."""
    run.watch.say(f"stopped: {reason}")
    if run.progress.judged != run.progress.step:
        judge(run)
    save(run)
    test = None
    if run.team.leads:
        _try_average(run)
        test = _test(run)
    wait(run.team)
    best = read_json(model_folder(run.folder) / SCORES)
    return Outcome(reason, run.progress, best["valid"], test)


def _try_average(run: Run) -> None:
    places = checkpoints(run.folder / "checkpoints")[-run.settings.train.average :]
    if run.settings.train.average < 2 or len(places) < 2:
        return
    checkpoint = replace(run.checkpoint(), model=load_model(run.folder).model.to(run.device))
    fill(checkpoint.model, average_states(places), places[-1])
    n = run.settings.train.valid_sentences
    found = validate(checkpoint, run.prepared.valid, run.prepared.valid_pairs[:n])
    run.watch.say(f"mean of {len(places)} checkpoints: {found}")
    if run.progress.best is None or found.value(run.settings.train.stop_on) > run.progress.best:
        about = {"step": run.progress.step, "averaged": len(places)}
        save_model(run.folder / "model", checkpoint, {"valid": found.scores, **about})


def _test(run: Run) -> Scores | None:
    pairs = run.prepared.test_pairs
    if run.settings.data.form != "pairs" and run.settings.data.test:
        _test_text(run)
    if not pairs:
        return None
    run.watch.say(f"translating {len(pairs):,} test sentences")
    checkpoint = load_model(run.folder)
    checkpoint.model.to(run.device)
    translator = Translator.from_checkpoint(checkpoint, PlainEngine(checkpoint.model))
    found = translator.translate([src for src, _ in pairs], run.settings.decode)
    result = score([one.text for one in found], [tgt for _, tgt in pairs], run.settings.data.tgt_lang)
    run.watch.say(
        f"test BLEU {result.bleu:.2f} ({result.bleu_signature}), chrF {result.chrf:.2f} ({result.chrf_signature})"
    )
    _note_test(run, asdict(result))
    return result


def _test_text(run: Run) -> None:
    """Says how well the best model foresees the test text, and writes it beside the model."""
    checkpoint = load_model(run.folder)
    checkpoint.model.to(run.device)
    loss = text_loss(checkpoint, run.prepared.test)
    run.watch.say(f"test loss {loss:.4f}, perplexity {exp(min(loss, 50.0)):.3f}")
    _note_test(run, {"loss": loss})


def _note_test(run: Run, found: dict[str, Any]) -> None:
    path = run.folder / "model" / SCORES
    with atomic_file(path) as draft:
        write_json(draft, {**read_json(path), "test": found})


def _silent(message: str) -> None:
    pass
