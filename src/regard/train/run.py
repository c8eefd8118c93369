"""A training run: its parts, its settings resolved for this machine, its folder backed up."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from regard.build import build_model
from regard.checkpoint.weights import Checkpoint
from regard.config import Settings, TrainSettings
from regard.data.dataset import Dataset
from regard.model import Seq2Seq
from regard.train.distributed import World, distribute
from regard.train.initialise import start_from_model, start_from_vectors
from regard.train.loss import LossModule
from regard.train.progress import RunLog
from regard.train.state import Ema, Progress, checkpoints, load_state
from regard.train.step import Step, check_schedule, make_optimiser, make_step

COUNTS = (
    *("batch_tokens", "accumulate", "max_epochs", "max_steps", "valid_every", "valid_sentences"),
    *("log_every", "save_every", "keep", "average", "patience"),
)


@dataclass(eq=False)
class TrainingRun:
    """The parts of a run; `progress` and the modules change in place."""

    folder: Path
    settings: Settings
    dataset: Dataset
    model: Seq2Seq
    optimiser: torch.optim.Optimizer
    step: Step
    ema: Ema | None
    progress: Progress
    world: World
    device: torch.device
    log: RunLog

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.model, self.dataset.tokenizer, self.settings)


def resolve_settings(settings: Settings, device: torch.device) -> Settings:
    """Resolve the settings that depend on the machine; raise ValueError for what is impossible, before any work."""
    train = settings.train
    check_schedule(train)
    check_numbers(train)
    if train.vectors != "random" and settings.model.d_embedding is not None:
        raise ValueError(
            f"train.vectors {train.vectors!r} initialises whole embeddings, but model.d_embedding "
            f"{settings.model.d_embedding} factorises them: leave one out"
        )
    if {train.max_epochs, train.max_steps, train.max_minutes, train.patience} == {None}:
        raise ValueError("a run must end, got no limit: set train.max_steps, max_epochs, max_minutes or patience")
    check_family(settings)
    precision = train.precision
    if precision == "auto":
        precision = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    tie = settings.model.tie if settings.text.joint or settings.model.tie != "all" else "target"
    n_encoder_layers = 0 if settings.model.family == "decoder" else settings.model.n_encoder_layers
    model = replace(settings.model, tie=tie, n_encoder_layers=n_encoder_layers)
    return replace(settings, train=replace(train, precision=precision), model=model)


def check_family(settings: Settings) -> None:
    """Raise ValueError if a decoder is to train on pairs, or another model on text without translations."""
    family, form, train = settings.model.family, settings.data.form, settings.train
    is_decoder = family == "decoder"
    if is_decoder != (form != "pairs"):
        way_out = 'set data.form to "text" or "documents"' if is_decoder else 'set model.family to "decoder"'
        got = f"{family!r} and {form!r}"
        raise ValueError(f"a decoder trains on text, other families on pairs, got {got}: {way_out}")
    if is_decoder and train.stop_on != "loss":
        raise ValueError(f"train.stop_on must be 'loss' for a decoder, which does not translate, got {train.stop_on!r}")
    if is_decoder and train.vectors != "random":
        raise ValueError(f"train.vectors must be 'random' for a decoder, got {train.vectors!r}: leave it out")


def check_numbers(train: TrainSettings) -> None:
    """Raise ValueError for a number that is out of range."""
    for name in COUNTS:
        value = getattr(train, name)
        if value is not None and value < 1:
            raise ValueError(f"train.{name} must be 1 or more, got {value}")
    if train.warmup < 0 or train.seed < 0:
        raise ValueError(f"train.warmup and train.seed must be 0 or more, got {train.warmup} and {train.seed}")
    if train.r_drop < 0:
        raise ValueError(f"train.r_drop must be 0 or more, got {train.r_drop}")
    if train.lr <= 0 or (train.clip is not None and train.clip <= 0):
        raise ValueError(f"train.lr and train.clip must be positive, got {train.lr} and {train.clip}")
    shares = {"label_smoothing": train.label_smoothing, "ema": train.ema}
    shares |= {f"betas[{i}]": beta for i, beta in enumerate(train.betas)}
    for name, value in shares.items():
        if value is not None and not 0 <= value < 1:
            raise ValueError(f"train.{name} must lie in [0, 1), got {value}")


def open_run(
    folder: Path, settings: Settings, dataset: Dataset, world: World, device: torch.device, log: RunLog
) -> TrainingRun:
    """Build a run, from the newest checkpoint if it has one."""
    torch.manual_seed(settings.train.seed)
    tokenizer = dataset.tokenizer
    model = build_model(settings.model, (tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt"))).to(device)
    model.train()
    saved = checkpoints(folder / "checkpoints")
    if not saved and settings.train.init is not None:
        start_from_model(model, settings.train.init)
    if not saved and settings.train.vectors != "random":
        log.info(f"training {settings.train.vectors} vectors")
        start_from_vectors(model, dataset.train, settings.train.vectors, settings.train.seed)
    # Sharding replaces the parameters: the optimiser must be given the shards.
    module = distribute(
        LossModule(model, settings.train.label_smoothing, settings.train.r_drop), world, settings.train.shard
    )
    optimiser = make_optimiser(model, settings.train)
    ema = None if settings.train.ema is None else Ema(model, settings.train.ema)
    progress = load_state(saved[-1], model, optimiser, ema) if saved else Progress()
    step = make_step(module, optimiser, settings.train, world, device, log.info)
    return TrainingRun(folder, settings, dataset, model, optimiser, step, ema, progress, world, device, log)


BACKUP = ".replaced"  # inside the folder, which may be a mount point


def back_up(folder: Path) -> None:
    """Move the contents of a folder to a backup inside it; an existing backup, of a run that was killed, is kept."""
    backup = folder / BACKUP
    if backup.exists():
        return remove_run(folder)
    backup.mkdir()
    for path in run_files(folder):
        path.rename(backup / path.name)


def restore(folder: Path) -> None:
    """Make a folder what it was before `back_up`, or empty."""
    backup = folder / BACKUP
    remove_run(folder)
    if backup.is_dir():
        for path in list(backup.iterdir()):
            path.rename(folder / path.name)
        backup.rmdir()


def discard_backup(folder: Path) -> None:
    shutil.rmtree(folder / BACKUP, ignore_errors=True)


def run_files(folder: Path) -> list[Path]:
    """List the files of a run, without a backup."""
    return [path for path in folder.iterdir() if path.name != BACKUP] if folder.is_dir() else []


def remove_run(folder: Path) -> None:
    """Remove the files of a run, not a backup."""
    for path in run_files(folder):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
