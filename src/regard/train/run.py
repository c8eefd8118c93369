"""A run folder: open, resume, replace."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from regard.build import build_model
from regard.checkpoint.folder import Checkpoint
from regard.config import Settings, TrainSettings, choose
from regard.data.prepare import Dataset
from regard.model import Seq2Seq
from regard.train.distributed import World, distribute
from regard.train.initialise import SKIP_GRAM, start_from_model, start_from_vectors
from regard.train.loss import LossModule
from regard.train.progress import RunLog
from regard.train.state import Ema, Progress, checkpoints, load_state
from regard.train.step import Step, check_schedule, make_optimiser, make_step

COUNTS = (
    *("batch_tokens", "accumulate", "max_epochs", "max_steps", "valid_every", "valid_sentences"),
    *("log_every", "save_every", "keep", "average", "patience"),
)
PRECISION = {"auto": None, "float32": "float32", "bfloat16": "bfloat16"}


@dataclass(eq=False)
class TrainingRun:
    """One run's parts; what changes is inside `progress` and the modules."""

    folder: Path
    settings: Settings
    dataset: Dataset
    model: Seq2Seq
    module: nn.Module  # the model, or the model wrapped so that several processes learn together
    optimiser: torch.optim.Optimizer
    step: Step
    ema: Ema | None
    progress: Progress
    world: World
    device: torch.device
    log: RunLog

    def checkpoint(self) -> Checkpoint:
        """Gives the model with its words and settings."""
        return Checkpoint(self.model, self.dataset.tokenizer, self.settings)


def choose_device(name: str) -> torch.device:
    """Gives the named device, or the best there is."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"train.device must be auto, cpu, cuda or cuda:N, got {name!r}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("train.device is 'cuda', and there is no CUDA device here: use cpu or auto")
    return device


def resolve_settings(settings: Settings, device: torch.device) -> Settings:
    """Settles what was left to the machine, and refuses what cannot be done, before any work."""
    train = settings.train
    check_schedule(train)
    check_numbers(train)
    choose({"bleu": 0, "loss": 0}, train.stop_on, "stop_on")
    choose({"random": 0, **SKIP_GRAM}, train.vectors, "vectors")
    if train.vectors != "random" and settings.model.d_embedding is not None:
        raise ValueError(
            f"train.vectors {train.vectors!r} fills whole tables, and model.d_embedding {settings.model.d_embedding} "
            "makes them of two: leave one out"
        )
    if {train.max_epochs, train.max_steps, train.max_minutes, train.patience} == {None}:
        raise ValueError("a run must end: give train.max_steps, max_epochs, max_minutes or patience")
    check_family(settings)
    precision = choose(PRECISION, train.precision, "precision")
    if precision is None:
        precision = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    tie = settings.model.tie if settings.text.joint or settings.model.tie != "all" else "target"
    n_encoder_layers = 0 if settings.model.family == "decoder" else settings.model.n_encoder_layers
    model = replace(settings.model, tie=tie, n_encoder_layers=n_encoder_layers)
    return replace(settings, train=replace(train, precision=precision), model=model)


def check_family(settings: Settings) -> None:
    """Raises ValueError where a model that writes is to translate, or one that translates has no pairs."""
    family, form, train = settings.model.family, settings.data.form, settings.train
    writes = family == "decoder"
    if writes != (form != "pairs"):
        way_out = 'set data.form to "text" or "documents"' if writes else 'set model.family to "decoder"'
        got = f"{family!r} and {form!r}"
        raise ValueError(f"a decoder learns from text alone, all others from pairs, got {got}: {way_out}")
    if writes and train.stop_on != "loss":
        raise ValueError(f"train.stop_on must be 'loss' for a decoder, which translates nothing, got {train.stop_on!r}")
    if writes and train.vectors != "random":
        raise ValueError(f"train.vectors must be 'random' for a decoder, got {train.vectors!r}: leave it out")


def check_numbers(train: TrainSettings) -> None:
    """Raises ValueError for a number with which nothing could be learned."""
    for name in COUNTS:
        value = getattr(train, name)
        if value is not None and value < 1:
            raise ValueError(f"train.{name} must be 1 or more, got {value}")
    if train.warmup < 0 or train.seed < 0:
        raise ValueError(f"train.warmup and train.seed must be 0 or more, got {train.warmup} and {train.seed}")
    if train.r_drop < 0:
        raise ValueError(f"train.r_drop must be 0 or more, got {train.r_drop}")
    if train.lr <= 0 or (train.clip is not None and train.clip <= 0):
        raise ValueError(f"train.lr and train.clip must be more than 0, got {train.lr} and {train.clip}")
    shares = {"label_smoothing": train.label_smoothing, "ema": train.ema}
    shares |= {f"betas[{i}]": beta for i, beta in enumerate(train.betas)}
    for name, value in shares.items():
        if value is not None and not 0 <= value < 1:
            raise ValueError(f"train.{name} must lie in [0, 1), got {value}")


def open_run(
    folder: Path, settings: Settings, dataset: Dataset, world: World, device: torch.device, log: RunLog
) -> TrainingRun:
    """Builds the model from the seed, or from the newest checkpoint if the run has one."""
    torch.manual_seed(settings.train.seed)
    tokenizer = dataset.tokenizer
    model = build_model(settings.model, (tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt"))).to(device)
    model.train()
    saved = checkpoints(folder / "checkpoints")
    if not saved and settings.train.init is not None:
        start_from_model(model, settings.train.init)
    if not saved and settings.train.vectors != "random":
        log.info(f"learning {settings.train.vectors} vectors")
        start_from_vectors(model, dataset.train, settings.train.vectors, settings.train.seed)
    # Shards are other tensors than the parameters they were cut from: the optimiser must know the shards.
    module = distribute(
        LossModule(model, settings.train.label_smoothing, settings.train.r_drop), world, settings.train.shard
    )
    optimiser = make_optimiser(model, settings.train)
    ema = None if settings.train.ema is None else Ema(model, settings.train.ema)
    progress = load_state(saved[-1], model, optimiser, ema) if saved else Progress()
    step = make_step(module, optimiser, settings.train, world, device, log.info)
    return TrainingRun(folder, settings, dataset, model, module, optimiser, step, ema, progress, world, device, log)


BACKUP = ".replaced"  # inside the folder, so that no neighbour is touched and a mounted folder will do


def back_up(folder: Path) -> None:
    """Moves all that is in a folder out of a new run's way; of a replacement that was killed the first run is kept."""
    aside = folder / BACKUP
    if aside.exists():
        return remove_run(folder)
    aside.mkdir()
    for path in run_files(folder):
        path.rename(aside / path.name)


def restore(folder: Path) -> None:
    """Makes a folder what it was before `put_aside`, or empty."""
    aside = folder / BACKUP
    remove_run(folder)
    if aside.is_dir():
        for path in list(aside.iterdir()):
            path.rename(folder / path.name)
        aside.rmdir()


def discard_backup(folder: Path) -> None:
    """Removes the old run."""
    shutil.rmtree(folder / BACKUP, ignore_errors=True)


def run_files(folder: Path) -> list[Path]:
    """Lists what a folder holds of its new run."""
    return [path for path in folder.iterdir() if path.name != BACKUP] if folder.is_dir() else []


def remove_run(folder: Path) -> None:
    """Removes what a folder holds of its new run."""
    for path in run_files(folder):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
