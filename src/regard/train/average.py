"""The mean of several checkpoints, which is often better than each."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard.checkpoint import fill, load_model, read_tensors, save_model
from regard.train.state import STATE, checkpoints


def average_states(places: Sequence[Path]) -> dict[str, Tensor]:
    """Gives the mean of the parameters saved in some checkpoints of one run."""
    return average([_parameters(place / STATE) for place in places])


def average(models: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Gives the mean of tensors by name; whole numbers are taken from the last."""
    if not models:
        raise ValueError("there must be 1 or more models to average, got 0")
    for model in models[1:]:
        if model.keys() != models[0].keys():
            other = sorted(model.keys() ^ models[0].keys())[:3]
            raise ValueError(f"models to average must have the same tensors, got others: {other}")
    return {name: _mean([model[name] for model in models]) for name in models[-1]}


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    last = tensors[-1]
    if not last.is_floating_point():
        return last
    return torch.stack([tensor.double() for tensor in tensors]).mean(dim=0).to(last.dtype)


def average_run(run: Path, out: Path, last: int) -> int:
    """Saves the mean of a run's newest checkpoints as a model, and gives how many there were."""
    places = checkpoints(run / "checkpoints")[-last:] if last > 0 else []
    if not places:
        raise ValueError(f"{run}: there must be 1 or more checkpoints to average, got 0 (last {last})")
    if out.exists():
        raise ValueError(f"{out}: there is something here already: name another folder")
    checkpoint = load_model(run)
    fill(checkpoint.model, average_states(places), places[-1])
    save_model(out, checkpoint, {"averaged": [place.name for place in places]})
    return len(places)


def _parameters(path: Path) -> dict[str, Tensor]:
    tensors = read_tensors(path)
    averaged = {name[4:]: tensor for name, tensor in tensors.items() if name.startswith("ema.")}
    return averaged or {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")}
