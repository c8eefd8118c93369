"""Checkpoints of a run, moving averages, averaging of models."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isclose
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from regard.atomic import (
    atomic_folder,
    latest,
    remove,
    remove_drafts,
    verify_checksums,
    write_checksums,
    written_names,
)
from regard.checkpoint import read_json, write_json
from regard.checkpoint.weights import (
    fill,
    gathered,
    load_model,
    put,
    read_tensors,
    save_model,
    unique_tensors,
    write_tensors,
)
from regard.config import ModelSettings

Log = Callable[[str], None]
STATE, PROGRESS = "state.safetensors", "progress.json"
STEP = re.compile(r"step-(\d{8})")
DAMAGED = "damaged-"  # before the name of a checkpoint


@dataclass
class Progress:
    """The state of a run but for tensors."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch that are done
    tokens: int = 0  # target tokens seen, without padding
    seconds: float = 0.0
    best: float | None = None  # the best validation so far, larger being better
    best_step: int = 0
    bad: int = 0  # validations since then
    judged: int = 0  # step of the newest validation
    unreported: tuple[float, int] = (0.0, 0)  # sum of losses and tokens since the last entry of `losses`
    losses: list[tuple[int, float]] = field(default_factory=list)  # (step, mean loss since the last entry)
    valid: list[dict[str, int | float]] = field(default_factory=list)


class Ema:
    """An exponential moving average of the parameters (Polyak averaging)."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        now = unique_tensors(model)
        self.mean = {name: tensor.clone() for name, tensor in now.items()}
        # Parameters change in place, so these references stay valid.
        pairs = [(local(self.mean[name]), local(tensor)) for name, tensor in now.items()]
        self.moving = [(mean, tensor) for mean, tensor in pairs if tensor.is_floating_point()]
        self.counting = [(mean, tensor) for mean, tensor in pairs if not tensor.is_floating_point()]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average, with a smaller decay in the first steps."""
        decay = min(self.decay, (1 + step) / (10 + step))
        means, tensors = [mean for mean, _ in self.moving], [tensor for _, tensor in self.moving]
        torch._foreach_lerp_(means, tensors, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]
        for mean, tensor in self.counting:
            mean.copy_(tensor)


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def save_state(
    folder: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    ema: Ema | None,
    progress: Progress,
    write: bool = True,
) -> None:
    """Write one checkpoint atomically; shards are gathered by all processes first.

    Random states are not part of it: every step derives its own from the seed and its number.
    """
    tensors = {f"model.{name}": tensor for name, tensor in unique_tensors(model).items()}
    tensors |= {} if ema is None else {f"ema.{name}": tensor for name, tensor in ema.mean.items()}
    tensors = gathered(tensors | optimiser_tensors(model, optimiser))
    if write:
        with atomic_folder(folder / f"step-{progress.step:08d}") as part:
            write_tensors(part / STATE, tensors)
            write_json(part / PROGRESS, asdict(progress))
            write_checksums(part)


def load_state(folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, ema: Ema | None) -> Progress:
    """Load a checkpoint: parameters, optimiser, averages and progress; raise ValueError if it is damaged."""
    verify_checksums(folder)
    path = folder / STATE
    groups: dict[str, dict[str, Tensor]] = {"model": {}, "ema": {}, "adam": {}}
    for name, tensor in read_tensors(path).items():
        kind, _, rest = name.partition(".")
        if kind not in groups:
            raise ValueError(f"{path}: this is not the state of a run, it holds {name!r}")
        groups[kind][rest] = tensor
    fill(model, groups["model"], path)
    if ema is not None:
        for name, mean in ema.mean.items():  # an average that the run did not have before starts here
            put(mean, groups["ema"].get(name, groups["model"][name]))
    fill_optimiser(model, optimiser, groups["adam"])
    return read_progress(folder / PROGRESS)


def load_newest(
    folders: Sequence[Path], model: nn.Module, optimiser: torch.optim.Optimizer, ema: Ema | None, log: Log
) -> Progress:
    """Load the newest checkpoint that is whole; raise ValueError naming the newest if none is."""
    first_error = None
    for folder in reversed(folders):
        try:
            return load_state(folder, model, optimiser, ema)
        except ValueError as error:
            first_error = first_error or error
            log(f"{folder.name} cannot be used, trying the next older checkpoint: {error}")
    if first_error is not None:
        raise first_error
    return Progress()


def read_progress(path: Path) -> Progress:
    saved = read_json(path)
    try:
        saved["losses"] = [(int(step), float(loss)) for step, loss in saved["losses"]]
        saved["unreported"] = tuple(saved["unreported"])
        return Progress(**saved)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: this is not the progress of a run ({error!r})") from error


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's state by the names of the parameters."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"adam.{key}.{name}"] = value if isinstance(value, Tensor) else torch.tensor(value)
    return tensors


@torch.no_grad()
def fill_optimiser(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the optimiser's state."""
    for name, parameter in model.named_parameters():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            saved = tensors.get(f"{key}.{name}")
            if saved is not None and key == "step":
                optimiser.state[parameter][key] = saved.to(parameter.device)
            elif saved is not None:
                optimiser.state[parameter][key] = torch.zeros_like(parameter)
                put(optimiser.state[parameter][key], saved)


def checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    return [latest(folder / name) for name in sorted(written_names(folder)) if is_checkpoint(name)]


def is_checkpoint(name: str) -> bool:
    """Tell whether a name is that of a checkpoint."""
    return STEP.fullmatch(name) is not None


def set_aside(folder: Path, step: int) -> None:
    """Rename the checkpoints after a step, which could not be used, so that nobody takes them for good ones."""
    for path in checkpoints(folder):
        name = STEP.search(path.name)
        if name is not None and int(name[1]) > step:
            remove(folder / f"{DAMAGED}{name[0]}")
            path.rename(folder / f"{DAMAGED}{name[0]}")


def remove_old(folder: Path, keep: int) -> None:
    """Remove all but the newest checkpoints, and incomplete ones of a run that was killed."""
    for path in checkpoints(folder)[:-keep]:
        remove(path)
    remove_drafts(folder)


def average_states(folders: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the parameters in some checkpoints of one run."""
    return average([_parameters(folder) for folder in folders])


def average(models: Sequence[dict[str, Tensor]], shares: Sequence[float] | None = None) -> dict[str, Tensor]:
    """Return the mean of tensors by name, weighted by shares if given; integers are taken from the last model."""
    if not models:
        raise ValueError("averaging needs 1 or more models, got 0")
    for model in models[1:]:
        if model.keys() != models[0].keys():
            other = sorted(model.keys() ^ models[0].keys())[:3]
            raise ValueError(f"models to average must have the same tensors, got differing ones: {other}")
    return {name: _mean([model[name] for model in models], shares) for name in models[-1]}


def _mean(tensors: Sequence[Tensor], shares: Sequence[float] | None) -> Tensor:
    last = tensors[-1]
    if not last.is_floating_point():
        return last
    stacked = torch.stack([tensor.double() for tensor in tensors])
    if shares is None:
        return stacked.mean(dim=0).to(last.dtype)
    return torch.tensordot(torch.tensor(shares, dtype=torch.float64), stacked, dims=1).to(last.dtype)


def average_run(run: Path, out: Path, last: int) -> int:
    """Save the mean of a run's newest checkpoints as a model, and return how many there were."""
    folders = checkpoints(run / "checkpoints")[-last:] if last > 0 else []
    if not folders:
        raise ValueError(f"{run}: averaging needs 1 or more checkpoints, got 0 (last {last})")
    if out.exists():
        raise ValueError(f"{out}: the folder exists already: name another")
    checkpoint = load_model(run)
    fill(checkpoint.model, average_states(folders), folders[-1])
    save_model(out, checkpoint, {"averaged": [folder.name for folder in folders]})
    return len(folders)


def average_models(models: Sequence[Path], shares: Sequence[float], out: Path) -> None:
    """Save the mean of several models of one shape and tokenizer, with the settings of the first.

    Models fine-tuned from one another are close enough for their mean to be a good model.
    """
    if len(shares) != len(models) or not isclose(sum(shares), 1.0):
        raise ValueError(
            f"averaging needs one share for each of {len(models)} models, with a sum of 1, got {list(shares)}"
        )
    if out.exists():
        raise ValueError(f"{out}: the folder exists already: name another")
    first, *others = [load_model(folder) for folder in models]
    for other, folder in zip(others, models[1:], strict=True):
        _check_same_model(other.settings.model, first.settings.model, folder)
        if other.tokenizer.models != first.tokenizer.models:
            raise ValueError(
                f"{folder}: models to average must have one tokenizer, got another than that of {models[0]}"
            )
    states = [one.model.state_dict() for one in (first, *others)]
    first.model.load_state_dict(average(states, shares))
    save_model(out, first, {"shares": list(shares)})


def _check_same_model(other: ModelSettings, first: ModelSettings, folder: Path) -> None:
    """Raise ValueError at the first setting in which two models differ, but for dropout, which acts in training alone.

    Shapes do not tell: with other heads, or another position scheme, equal weights mean something else.
    """
    ours, theirs = asdict(first), asdict(other)
    for name, value in ours.items():
        if theirs[name] != value and name != "dropout":
            raise ValueError(
                f"{folder}: models to average must have the same settings, got model.{name} {theirs[name]!r} instead "
                f"of {value!r}: average models that were trained from one another"
            )


def _parameters(folder: Path) -> dict[str, Tensor]:
    verify_checksums(folder)
    tensors = read_tensors(folder / STATE)
    averaged = {name[4:]: tensor for name, tensor in tensors.items() if name.startswith("ema.")}
    return averaged or {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")}
