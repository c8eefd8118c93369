"""All that a run must remember to go on as if it had never stopped."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.checkpoint import fill, read_json, read_tensors, unique_tensors, whole_folder, write_json

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
    losses: list[tuple[int, float]] = field(default_factory=list)  # (step, mean loss since the last entry)
    valid: list[dict[str, float]] = field(default_factory=list)


class Ema:
    """A running mean of the parameters, `decay` being the weight of the past (Polyak averaging)."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.mean = {name: tensor.clone() for name, tensor in unique_tensors(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Moves the mean towards the parameters, faster in the first steps, whose past is worth little."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, tensor in unique_tensors(model).items():
            if tensor.is_floating_point():
                self.mean[name].lerp_(tensor, 1 - decay)
            else:
                self.mean[name].copy_(tensor)


def save_state(
    folder: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    ema: Ema | None,
    progress: Progress,
    write: bool = True,
) -> None:
    """Writes one checkpoint into the run's folder, whole or not at all; shards are gathered by all processes first."""
    tensors = {f"model.{name}": tensor for name, tensor in unique_tensors(model).items()}
    tensors |= {} if ema is None else {f"ema.{name}": tensor for name, tensor in ema.mean.items()}
    tensors |= optimiser_tensors(model, optimiser)
    tensors["random.cpu"] = torch.get_rng_state()
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    if write:
        with whole_folder(folder / f"step-{progress.step:08d}") as part:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, part / STATE)
            write_json(part / PROGRESS, asdict(progress))


def load_state(
    place: Path, model: nn.Module, optimiser: torch.optim.Optimizer, ema: Ema | None, rank: int = 0
) -> Progress:
    """Puts a checkpoint back: parameters, optimiser, averages, random numbers, and where the run stood."""
    path = place / STATE
    groups: dict[str, dict[str, Tensor]] = {"model": {}, "ema": {}, "adam": {}, "random": {}}
    for name, tensor in read_tensors(path).items():
        kind, _, rest = name.partition(".")
        groups[kind][rest] = tensor
    fill(model, groups["model"], path)
    if ema is not None:
        for name, mean in ema.mean.items():
            mean.copy_(groups["ema"][name])
    put_optimiser(model, optimiser, groups["adam"])
    saved = read_json(place / PROGRESS)
    saved["losses"] = [(int(step), float(loss)) for step, loss in saved["losses"]]
    torch.set_rng_state(groups["random"]["cpu"])
    if torch.cuda.is_available() and "cuda" in groups["random"]:
        torch.cuda.set_rng_state(groups["random"]["cuda"])
    if rank:  # the state that was saved is the leader's; the others must not drop out the same features
        torch.manual_seed(1_000_003 * rank + saved["step"])
    return Progress(**saved)


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Gives the optimiser's memory by the names of the parameters."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"adam.{key}.{name}"] = value if isinstance(value, Tensor) else torch.tensor(value)
    return tensors


def put_optimiser(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Gives the optimiser its memory back."""
    for name, parameter in model.named_parameters():
        found = {
            key: tensors[f"{key}.{name}"] for key in ("step", "exp_avg", "exp_avg_sq") if f"{key}.{name}" in tensors
        }
        if found:
            optimiser.state[parameter] = {
                key: value.to(parameter.device if key != "step" else value.device) for key, value in found.items()
            }


def checkpoints(folder: Path) -> list[Path]:
    """Lists the complete checkpoints of a run, oldest first."""
    found = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d{8}", path.name)]
    return sorted(found, key=lambda path: path.name)


def forget_old(folder: Path, keep: int) -> None:
    """Removes all but the newest checkpoints."""
    for path in checkpoints(folder)[:-keep]:
        shutil.rmtree(path)
