"""All that a run must remember to go on as if it had never stopped."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from regard.checkpoint import (
    fill,
    gathered,
    put,
    read_json,
    read_tensors,
    unique_tensors,
    write_json,
    write_tensors,
)
from regard.text.whole import standing, whole_folder

STATE, PROGRESS = "state.safetensors", "progress.json"


@dataclass
class Progress:
    """Where a run stands; everything but tensors."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch that are done
    tokens: int = 0  # real target tokens seen
    seconds: float = 0.0
    best: float | None = None  # the best validation so far, larger being better
    best_step: int = 0
    bad: int = 0  # validations since
    judged: int = 0  # step of the newest validation
    unreported: tuple[float, int] = (0.0, 0)  # sum of losses and tokens since the last entry of `losses`
    losses: list[tuple[int, float]] = field(default_factory=list)  # (step, mean loss since the last entry)
    valid: list[dict[str, int | float]] = field(default_factory=list)


class Ema:
    """A running mean of the parameters, `decay` being the weight of the past (Polyak averaging)."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        now = unique_tensors(model)
        self.mean = {name: tensor.clone() for name, tensor in now.items()}
        # Parameters change in place, so these stay theirs.
        pairs = [(local(self.mean[name]), local(tensor)) for name, tensor in now.items()]
        self.moving = [(mean, tensor) for mean, tensor in pairs if tensor.is_floating_point()]
        self.counting = [(mean, tensor) for mean, tensor in pairs if not tensor.is_floating_point()]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Moves the mean towards the parameters, faster in the first steps, whose past is worth little."""
        decay = min(self.decay, (1 + step) / (10 + step))
        means, tensors = [mean for mean, _ in self.moving], [tensor for _, tensor in self.moving]
        torch._foreach_lerp_(means, tensors, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]
        for mean, tensor in self.counting:
            mean.copy_(tensor)


def local(tensor: Tensor) -> Tensor:
    """Gives what this process holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def save_state(
    folder: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    ema: Ema | None,
    progress: Progress,
    write: bool = True,
) -> None:
    """Writes one checkpoint into the run's folder, whole or not at all; shards are gathered by all processes first.

    Random numbers are not part of it: every step draws its own from the seed and its number.
    """
    tensors = {f"model.{name}": tensor for name, tensor in unique_tensors(model).items()}
    tensors |= {} if ema is None else {f"ema.{name}": tensor for name, tensor in ema.mean.items()}
    tensors = gathered(tensors | optimiser_tensors(model, optimiser))
    if write:
        with whole_folder(folder / f"step-{progress.step:08d}") as part:
            write_tensors(part / STATE, tensors)
            write_json(part / PROGRESS, asdict(progress))


def load_state(place: Path, model: nn.Module, optimiser: torch.optim.Optimizer, ema: Ema | None) -> Progress:
    """Puts a checkpoint back: parameters, optimiser, averages, and where the run stood."""
    path = place / STATE
    groups: dict[str, dict[str, Tensor]] = {"model": {}, "ema": {}, "adam": {}}
    for name, tensor in read_tensors(path).items():
        kind, _, rest = name.partition(".")
        if kind not in groups:
            raise ValueError(f"{path}: this is no state of a run, it holds {name!r}")
        groups[kind][rest] = tensor
    fill(model, groups["model"], path)
    if ema is not None:
        for name, mean in ema.mean.items():  # a mean that is asked for now begins here
            put(mean, groups["ema"].get(name, groups["model"][name]))
    put_optimiser(model, optimiser, groups["adam"])
    return read_progress(place / PROGRESS)


def read_progress(path: Path) -> Progress:
    """Reads where a run stood."""
    saved = read_json(path)
    try:
        saved["losses"] = [(int(step), float(loss)) for step, loss in saved["losses"]]
        saved["unreported"] = tuple(saved["unreported"])
        return Progress(**saved)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: this does not say where a run stood ({error!r})") from error


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Gives the optimiser's memory by the names of the parameters."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"adam.{key}.{name}"] = value if isinstance(value, Tensor) else torch.tensor(value)
    return tensors


@torch.no_grad()
def put_optimiser(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Gives the optimiser its memory back."""
    for name, parameter in model.named_parameters():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            saved = tensors.get(f"{key}.{name}")
            if saved is not None and key == "step":
                optimiser.state[parameter][key] = saved.to(parameter.device)
            elif saved is not None:
                optimiser.state[parameter][key] = torch.zeros_like(parameter)
                put(optimiser.state[parameter][key], saved)


def checkpoints(folder: Path) -> list[Path]:
    """Lists the complete checkpoints of a run, oldest first."""
    names = {path.name.removesuffix(".old") for path in folder.glob("step-*")}
    return [standing(folder / name) for name in sorted(names) if re.fullmatch(r"step-\d{8}", name)]


def forget_old(folder: Path, keep: int) -> None:
    """Removes all but the newest checkpoints, and what a run that was killed left half-written."""
    kept = checkpoints(folder)[-keep:]
    for path in folder.glob("step-*"):
        if path not in kept:
            shutil.rmtree(path)
