"""A run: everything that training needs, brought together in one folder."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from regard.build import build_model
from regard.checkpoint import Checkpoint, settings_table, write_json
from regard.config import Settings, choose
from regard.model import Seq2Seq
from regard.text.prepare import Prepared
from regard.train.distributed import Team, wrap
from regard.train.learner import Learner
from regard.train.schedule import check_schedule
from regard.train.state import Ema, Progress, checkpoints, load_state
from regard.train.step import make_optimiser
from regard.train.watch import Watch

PRECISION = {"auto": None, "float32": "float32", "bfloat16": "bfloat16"}


@dataclass(eq=False)
class Run:
    """One run's parts; what changes is inside `progress` and the modules."""

    folder: Path
    settings: Settings
    prepared: Prepared
    model: Seq2Seq
    learner: nn.Module  # the model, or the model wrapped so that several processes learn together
    optimiser: torch.optim.Optimizer
    ema: Ema | None
    progress: Progress
    team: Team
    device: torch.device
    watch: Watch

    def checkpoint(self) -> Checkpoint:
        """Gives the model with its words and settings."""
        return Checkpoint(self.model, self.prepared.tokenizer, self.settings)


def choose_device(name: str) -> torch.device:
    """Gives the named device, or the best there is."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("train.device is 'cuda', and there is no CUDA device here: use cpu or auto")
    return device


def resolve(settings: Settings, device: torch.device) -> Settings:
    """Settles what was left to the machine, and refuses what cannot be done, before any work."""
    train = settings.train
    check_schedule(train)
    choose({"bleu": 0, "loss": 0}, train.stop_on, "stop_on")
    for name in ("batch_tokens", "accumulate", "valid_every", "save_every", "log_every", "keep", "average"):
        if getattr(train, name) < 1:
            raise ValueError(f"train.{name} must be 1 or more, got {getattr(train, name)}")
    if train.max_epochs is None and train.max_steps is None and train.patience is None:
        raise ValueError("a run must end: give train.max_steps, train.max_epochs or train.patience")
    precision = choose(PRECISION, train.precision, "precision")
    if precision is None:
        precision = "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    tie = settings.model.tie if settings.text.joint or settings.model.tie != "all" else "target"
    return replace(settings, train=replace(train, precision=precision), model=replace(settings.model, tie=tie))


def open_run(
    folder: Path, settings: Settings, prepared: Prepared, team: Team, device: torch.device, watch: Watch
) -> Run:
    """Builds the model from the seed, or from the newest checkpoint if the run has one."""
    torch.manual_seed(settings.train.seed)
    tokenizer = prepared.tokenizer
    model = build_model(settings.model, (tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt"))).to(device)
    model.train()
    optimiser = make_optimiser(model, settings.train)
    ema = None if settings.train.ema is None else Ema(model, settings.train.ema)
    torch.manual_seed(settings.train.seed + 1 + team.rank)  # processes drop out different features
    saved = checkpoints(folder / "checkpoints")
    progress = load_state(saved[-1], model, optimiser, ema, team.rank) if saved else Progress()
    if team.leads and not saved:
        write_json(folder / "config.json", {"settings": settings_table(settings)})
    learner = wrap(Learner(model, settings.train.label_smoothing), team, settings.train.shard)
    return Run(folder, settings, prepared, model, learner, optimiser, ema, progress, team, device, watch)
