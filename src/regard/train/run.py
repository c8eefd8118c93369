"""A training run: its parts, its settings resolved for this machine, its folder locked and backed up."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from socket import gethostname

import torch
from filelock import FileLock, Timeout

from regard.atomic import ensure_folder, latest, move_theirs, remove, written_names
from regard.build import build_model
from regard.checkpoint import CONFIG, is_model_file, read_json, write_json
from regard.checkpoint.weights import Checkpoint
from regard.config import Settings, TrainSettings
from regard.data.dataset import Dataset, is_data_file
from regard.data.files import STDIN_COPY
from regard.model import Seq2Seq
from regard.train.distributed import World, all_reduce, distribute
from regard.train.initialise import start_from_model, start_from_vectors
from regard.train.loss import LossModule
from regard.train.progress import RunLog
from regard.train.state import DAMAGED, Ema, Progress, checkpoints, is_checkpoint, load_newest, set_aside
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
    tie = settings.model.tie
    if not settings.text.joint:  # the source has a vocabulary of its own
        tie = {"all": "target", "inputs": "none"}.get(tie, tie)
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
    progress = load_newest(saved, model, optimiser, ema, log.info)
    check_agreement(progress.step, folder, world)
    if world.is_main:
        set_aside(folder / "checkpoints", progress.step)
    step = make_step(module, optimiser, settings.train, world, device, log.info)
    return TrainingRun(folder, settings, dataset, model, optimiser, step, ema, progress, world, device, log)


def check_agreement(step: int, folder: Path, world: World) -> None:
    """Raise ValueError in all processes unless all have loaded the same checkpoint."""
    total, squares = all_reduce(torch.tensor([step, step * step], dtype=torch.float64), world).tolist()
    if world.size * squares != total * total:
        raise ValueError(
            f"{folder}: all processes must resume from one checkpoint, got step {step} in process {world.rank}: "
            "share the folder, or copy the main process's checkpoints to each machine"
        )


LOCK, HOLDER = ".regard-lock", ".regard-lock.json"


@contextmanager
def lock_run(folder: Path, world: World = World()) -> Iterator[None]:
    """Hold a run's folder for one training at a time; the lock dies with its process. One thread may take it twice."""
    if not world.is_main:
        yield
        return
    with _lock(folder, folder / LOCK, folder / HOLDER):
        yield


@contextmanager
def lock_beside(folder: Path) -> Iterator[None]:
    """Hold a folder that will be replaced as a whole, as `lock_run` does, by files beside it."""
    folder = folder.resolve()
    with _lock(folder, *(folder.with_name(f".{folder.name}{name}") for name in (LOCK, HOLDER))):
        yield


@contextmanager
def _lock(folder: Path, path: Path, holder: Path) -> Iterator[None]:
    with ensure_folder(path.parent):
        lock = FileLock(path.resolve(), timeout=0, is_singleton=True)
        try:
            lock.acquire()
        except Timeout as error:
            raise ValueError(
                f"{folder}: a folder holds one training at a time, got a second one while {_holder(holder)} trains "
                "there: wait for its end, stop it, or name another folder with --out"
            ) from error
        try:
            write_json(holder, {"pid": os.getpid(), "host": gethostname()})
            yield
        finally:
            if lock.lock_counter == 1:
                remove(holder)
                remove(path)
            lock.release()


def _holder(path: Path) -> str:
    try:
        holder = read_json(path)
    except ValueError:  # it is just about to write it
        return "another process"
    return f"process {holder.get('pid')} on {holder.get('host')}"


BACKUP = ".regard-replaced"  # inside the folder, which may be a mount point
# What a run writes into its folder, and which names inside its own folders are a run's.
RUN_FILES: dict[str, Callable[[str], bool] | None] = {
    **dict.fromkeys((CONFIG, "log.txt", "metrics.jsonl", "training.png", STDIN_COPY)),
    **{
        "data": is_data_file,
        "model": is_model_file,
        "checkpoints": lambda name: is_checkpoint(name.removeprefix(DAMAGED)),
    },
    "tensorboard": lambda name: name.startswith("events.out.tfevents."),
}


def check_replaceable(folder: Path) -> None:
    """Raise ValueError if a folder has something by the name of a run's file that is not of a run."""
    is_run = (folder / CONFIG).exists() and "settings" in read_json(folder / CONFIG)
    for name, path in run_files(folder).items():
        is_ours, inside = RUN_FILES[name], written_names(path)
        if not is_run or (is_ours is not None and inside and not any(map(is_ours, inside))):
            raise ValueError(f"{path}: --overwrite replaces a run, got something else by this name: name another --out")


def back_up(folder: Path) -> None:
    """Move a run to a backup inside its folder; an existing backup, of a run that was killed, is kept."""
    backup = folder / BACKUP
    if backup.exists():
        return remove_run(folder)
    backup.mkdir()
    for name, path in run_files(folder).items():
        path.rename(backup / name)


def restore(folder: Path) -> None:
    """Make a folder what it was before `back_up`, or leave in it what is not of a run."""
    backup = folder / BACKUP
    remove_run(folder)
    if backup.is_dir():
        for path in list(backup.iterdir()):
            path.rename(folder / path.name)
        backup.rmdir()


def discard_backup(folder: Path) -> None:
    """Remove the run that was replaced; files that others have put into its folders move to the new ones."""
    backup = folder / BACKUP
    for name, is_ours in RUN_FILES.items():
        if is_ours is not None and (backup / name).is_dir():
            move_theirs(backup / name, folder / name, is_ours)
        remove(backup / name, is_ours)
    remove(backup, lambda name: False)


def run_files(folder: Path) -> dict[str, Path]:
    """Return what a run has written into its folder, without a backup, and without files of others."""
    names = written_names(folder)
    return {name: latest(folder / name) for name in RUN_FILES if name in names}


def remove_run(folder: Path) -> None:
    """Remove what a run has written into its folder, not a backup, and no files of others."""
    for name, path in run_files(folder).items():
        remove(path, RUN_FILES[name])
