"""From settings to a trained model in a folder."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import exp
from pathlib import Path
from typing import Any

import torch

from regard.atomic import FULL, atomic_file, ensure_folder, latest, remove_drafts
from regard.checkpoint import CONFIG, SCORES, model_folder, read_json, read_settings, settings_table, write_json
from regard.checkpoint.weights import fill, load_model, save_model
from regard.config import Settings
from regard.data.dataset import Dataset
from regard.data.prepare import Resumed, prepare
from regard.data.tokenizer import Tokenizer
from regard.device import find_device
from regard.engine.plain import PlainEngine
from regard.pipeline.translator import Translator
from regard.score import Scores, score
from regard.train.distributed import World, barrier, init_distributed, on_main, shutdown_distributed
from regard.train.initialise import inherited_tokenizer
from regard.train.loop import RunStoppedError, save_checkpoint, train_loop, validate_and_keep
from regard.train.progress import RunLog
from regard.train.run import TrainingRun, discard_backup, lock_run, open_run, resolve_settings, restore, run_files
from regard.train.state import Progress, average_states, checkpoints
from regard.train.validate import text_loss, validate


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    reason: str
    progress: Progress
    best: dict[str, float]
    test: Scores | None


def train(settings: Settings, folder: Path, plot: Callable[[Progress], None], accept_new_data: bool = False) -> Outcome:
    """Prepare the text, train until there is a reason to stop, and leave the best model in `folder/model`.

    A run that has checkpoints is resumed; if its text has changed, only if that is accepted.
    """
    device = torch.device(find_device(settings.train.device))
    settings = resolve_settings(settings, device)
    world = init_distributed(device)
    try:
        with lock_run(folder, world), _run_folder(folder, world):
            if not checkpoints(folder / "checkpoints"):
                _save_settings(settings, folder, world)
            with RunLog(folder, settings.train.max_steps, world.is_main, plot) as log:
                dataset = _prepare(settings, folder, world, log, accept_new_data)
                run = open_run(folder, settings, dataset, world, device, log)
                _save_settings(settings, folder, world)  # of a run that is resumed not before that is possible
                return _train(run)
    except OSError as error:
        raise ValueError(_write_error(folder, error)) from error
    except KeyboardInterrupt as error:  # while the text was prepared, or after the last step
        raise RunStoppedError(signal.SIGINT) from error
    finally:
        shutdown_distributed(world)


def _save_settings(settings: Settings, folder: Path, world: World) -> None:
    if world.is_main:
        with atomic_file(folder / CONFIG) as draft:
            write_json(draft, {"settings": settings_table(settings)})


def _train(run: TrainingRun) -> Outcome:
    _announce(run)
    if run.settings.train.init is not None and run.progress.step == 0:
        validate_and_keep(run)  # the baseline before fine-tuning
    return _finish(run, train_loop(run))


@contextmanager
def _run_folder(folder: Path, world: World) -> Iterator[None]:
    """Create the run's folder; remove a new one if the run fails before its first checkpoint."""
    if not world.is_main:
        barrier(world)
        yield
        return
    was_there = bool(run_files(folder))
    with ensure_folder(folder):
        remove_drafts(folder)  # of a run that was killed
        barrier(world)
        try:
            yield
        except (ValueError, OSError):
            if not was_there and not checkpoints(folder / "checkpoints"):
                restore(folder)
            raise


def _write_error(folder: Path, error: OSError) -> str:
    """Return the message for a full disk, or a folder that cannot be written."""
    saved = checkpoints(folder / "checkpoints")
    way_out = "free disk space" if error.errno in FULL else "see to it"
    if saved:
        way_out = f"{saved[-1].name} is the last good checkpoint: {way_out} and continue with --resume"
    return f"{folder}: the run cannot be written ({error}); {way_out}"


def read_run_settings(folder: Path) -> Settings:
    """Read the settings that a run was started with."""
    if not (folder / CONFIG).exists():
        raise ValueError(f"{folder}: there is no run to resume here (no {CONFIG})")
    return read_settings(folder / CONFIG)


def _prepare(settings: Settings, folder: Path, world: World, log: RunLog, accept_new_data: bool) -> Dataset:
    """Let the main process prepare the text; the others then open it, or prepare it if they have another disk."""
    write = log.info if world.is_main else _discard
    resumed = Resumed(_run_tokenizer(folder), accept_new_data) if checkpoints(folder / "checkpoints") else None

    def read() -> Dataset:
        tokenizer = inherited_tokenizer(settings, folder)
        return prepare(settings.data, settings.text, folder, write, settings.train.seed, tokenizer, resumed=resumed)

    first: list[Dataset] = []
    on_main(world, "prepare", lambda: first.append(read()))
    if world.is_main:
        discard_backup(folder)
    return first[0] if first else read()


def _run_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of a run's weights: its model's, or, before there is one, that of its prepared text."""
    model = latest(folder / "model")
    return Tokenizer.load(model if (model / CONFIG).exists() else folder / "data")


def _announce(run: TrainingRun) -> None:
    n = sum(parameter.numel() for parameter in run.model.parameters())
    where = f"{run.device}, {run.settings.train.precision}" + (
        f", {run.world.size} processes" if run.world.size > 1 else ""
    )
    run.log.info(f"{run.settings.model.family} with {n:,} parameters on {where}")
    if run.progress.step:
        run.log.resume_from(run.progress.step)
        run.log.info(f"resuming from step {run.progress.step}")


def _finish(run: TrainingRun, reason: str) -> Outcome:
    """Validate the last step, try the mean of the last checkpoints, and score the test text."""
    run.log.info(f"stopped: {reason}")
    if run.progress.judged != run.progress.step:
        validate_and_keep(run)
    save_checkpoint(run)
    best, test = on_main(run.world, "finish", lambda: _conclude(run))
    return Outcome(reason, run.progress, best, None if test is None else Scores(**test))


def _conclude(run: TrainingRun) -> tuple[dict[str, float], dict[str, Any] | None]:
    """Return the best model's validation, and its scores on the test text if there is one."""
    _try_average(run)
    test = _test(run)
    best = read_json(model_folder(run.folder) / SCORES)["valid"]
    return best, None if test is None else asdict(test)


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
    """Log and save the best model's loss on the test text."""
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
