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
from regard.train.distributed import World, barrier, init_distributed, shutdown_distributed
from regard.train.initialise import inherited_tokenizer
from regard.train.loop import RunStoppedError, save_checkpoint, train_loop, validate_and_keep
from regard.train.progress import RunLog
from regard.train.run import TrainingRun, choose_device, discard_backup, open_run, resolve_settings, restore, run_files
from regard.train.state import Progress, average_states, checkpoints
from regard.train.validate import text_loss, validate


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    reason: str
    progress: Progress
    best: dict[str, float]
    test: Scores | None


def train(made: Settings, folder: Path, plot: Callable[[Progress], None]) -> Outcome:
    """Prepares the text, learns until there is a reason to stop, and leaves the best model in `folder/model`."""
    device = choose_device(made.train.device)
    made = resolve_settings(made, device)
    world = init_distributed(device)
    try:
        with _run_folder(folder, world):
            return _train(made, folder, world, device, plot)
    except OSError as error:
        raise ValueError(_write_error(folder, error)) from error
    except KeyboardInterrupt as error:  # while the text was prepared, or after the last step
        raise RunStoppedError(signal.SIGINT) from error
    finally:
        shutdown_distributed(world)


def _train(
    made: Settings, folder: Path, world: World, device: torch.device, plot: Callable[[Progress], None]
) -> Outcome:
    if world.is_main:
        with atomic_file(folder / CONFIG) as draft:
            write_json(draft, {"settings": settings_table(made)})
    with RunLog(folder, made.train.max_steps, world.is_main, plot) as log:
        dataset = _prepare(made, folder, world, log)
        if world.is_main:
            discard_backup(folder)
        run = open_run(folder, made, dataset, world, device, log)
        _announce(run)
        if made.train.init is not None and run.progress.step == 0:
            validate_and_keep(run)  # how good the model was before it learned on
        return _finish(run, train_loop(run))


@contextmanager
def _run_folder(folder: Path, world: World) -> Iterator[None]:
    """Makes the run's folder; a new one in which no step was saved vanishes again if the run was a mistake."""
    if not world.is_main:
        barrier(world)
        yield
        return
    was_there = bool(run_files(folder))
    with ensure_folder(folder):
        barrier(world)
        try:
            yield
        except (ValueError, OSError):
            if not was_there and not checkpoints(folder / "checkpoints"):
                restore(folder)
            raise


def _write_error(folder: Path, error: OSError) -> str:
    """Words what to do when the disk is full, or the folder cannot be written."""
    saved = checkpoints(folder / "checkpoints")
    way_out = (
        f"{saved[-1].name} is the last good checkpoint: make room and go on with --resume" if saved else "make room"
    )
    return f"{folder}: the run cannot be written ({error}); {way_out}"


def read_run_settings(folder: Path) -> Settings:
    """Reads the settings that a run was started with."""
    if not (folder / CONFIG).exists():
        raise ValueError(f"{folder}: there is no run to go on with here (no {CONFIG})")
    return read_settings(folder / CONFIG)


def _prepare(made: Settings, folder: Path, world: World, log: RunLog) -> Dataset:
    """Lets the leader prepare while the others wait, and then read what it made."""
    if not world.is_main:
        barrier(world)
    say, tokenizer = log.info if world.is_main else _discard, inherited_tokenizer(made, folder)
    dataset = prepare(made.data, made.text, folder, say, made.train.seed, tokenizer)
    if world.is_main:
        barrier(world)
    return dataset


def _announce(run: TrainingRun) -> None:
    n = sum(parameter.numel() for parameter in run.model.parameters())
    where = f"{run.device}, {run.settings.train.precision}" + (
        f", {run.world.size} processes" if run.world.size > 1 else ""
    )
    run.log.info(f"{run.settings.model.family} with {n:,} parameters on {where}")
    if run.progress.step:
        run.log.resume_from(run.progress.step)
        run.log.info(f"going on from step {run.progress.step}")


def _finish(run: TrainingRun, reason: str) -> Outcome:
    """Judges the last step, tries the mean of the last checkpoints, and scores the test text."""
    run.log.info(f"stopped: {reason}")
    if run.progress.judged != run.progress.step:
        validate_and_keep(run)
    save_checkpoint(run)
    test = None
    if run.world.is_main:
        _try_average(run)
        test = _test(run)
    barrier(run.world)
    best = read_json(model_folder(run.folder) / SCORES)
    return Outcome(reason, run.progress, best["valid"], test)


def _try_average(run: TrainingRun) -> None:
    folders = checkpoints(run.folder / "checkpoints")[-run.settings.train.average :]
    if run.settings.train.average < 2 or len(folders) < 2:
        return
    checkpoint = replace(run.checkpoint(), model=load_model(run.folder).model.to(run.device))
    fill(checkpoint.model, average_states(folders), folders[-1])
    n = run.settings.train.valid_sentences
    validation = validate(checkpoint, run.dataset.valid, run.dataset.valid_pairs[:n])
    run.log.info(f"mean of {len(folders)} checkpoints: {validation}")
    if run.progress.best is None or validation.value(run.settings.train.stop_on) > run.progress.best:
        about = {"step": run.progress.step, "averaged": len(folders)}
        save_model(run.folder / "model", checkpoint, {"valid": validation.scores, **about})


def _test(run: TrainingRun) -> Scores | None:
    pairs = run.dataset.test_pairs
    if run.settings.data.form != "pairs" and run.settings.data.test:
        _test_text(run)
    if not pairs:
        return None
    run.log.info(f"translating {len(pairs):,} test sentences")
    checkpoint = load_model(run.folder)
    checkpoint.model.to(run.device)
    translator = Translator.from_checkpoint(checkpoint, PlainEngine(checkpoint.model))
    translations = translator.translate([src for src, _ in pairs], run.settings.decode)
    result = score([one.text for one in translations], [tgt for _, tgt in pairs], run.settings.data.tgt_lang)
    run.log.info(
        f"test BLEU {result.bleu:.2f} ({result.bleu_signature}), chrF {result.chrf:.2f} ({result.chrf_signature})"
    )
    _save_test_scores(run, asdict(result))
    return result


def _test_text(run: TrainingRun) -> None:
    """Says how well the best model foresees the test text, and writes it beside the model."""
    checkpoint = load_model(run.folder)
    checkpoint.model.to(run.device)
    loss = text_loss(checkpoint, run.dataset.test)
    run.log.info(f"test loss {loss:.4f}, perplexity {exp(min(loss, 50.0)):.3f}")
    _save_test_scores(run, {"loss": loss})


def _save_test_scores(run: TrainingRun, scores: dict[str, Any]) -> None:
    path = run.folder / "model" / SCORES
    with atomic_file(path) as draft:
        write_json(draft, {**read_json(path), "test": scores})


def _discard(message: str) -> None:
    pass
