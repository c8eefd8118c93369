"""The mean of several checkpoints, which is often better than each."""

from collections.abc import Sequence
from math import isclose
from pathlib import Path

import torch
from torch import Tensor

from regard.checkpoint import fill, load_model, read_tensors, save_model
from regard.train.state import STATE, checkpoints


def average_states(places: Sequence[Path]) -> dict[str, Tensor]:
    """Gives the mean of the parameters saved in some checkpoints of one run."""
    return average([_parameters(place / STATE) for place in places])


def average(models: Sequence[dict[str, Tensor]], shares: Sequence[float] | None = None) -> dict[str, Tensor]:
    """Gives the mean of tensors by name, all alike or by shares; whole numbers are taken from the last."""
    if not models:
        raise ValueError("there must be 1 or more models to average, got 0")
    for model in models[1:]:
        if model.keys() != models[0].keys():
            other = sorted(model.keys() ^ models[0].keys())[:3]
            raise ValueError(f"models to average must have the same tensors, got others: {other}")
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


def average_models(models: Sequence[Path], shares: Sequence[float], out: Path) -> None:
    """Saves the mean of several models of one shape and the same pieces, with the settings of the first.

    Models that learned on from one another lie near each other, and their mean is then a model too.
    """
    if len(shares) != len(models) or not isclose(sum(shares), 1.0):
        raise ValueError(f"there must be one share for each of {len(models)} models, 1 in all, got {list(shares)}")
    if out.exists():
        raise ValueError(f"{out}: there is something here already: name another folder")
    first, *others = [load_model(place) for place in models]
    for other, place in zip(others, models[1:], strict=True):
        if other.tokenizer.models != first.tokenizer.models:
            raise ValueError(f"{place}: its pieces are others than those of {models[0]}: their mean would mean nothing")
    states = [one.model.state_dict() for one in (first, *others)]
    first.model.load_state_dict(average(states, shares))
    save_model(out, first, {"shares": list(shares)})


def _parameters(path: Path) -> dict[str, Tensor]:
    tensors = read_tensors(path)
    averaged = {name[4:]: tensor for name, tensor in tensors.items() if name.startswith("ema.")}
    return averaged or {name[6:]: tensor for name, tensor in tensors.items() if name.startswith("model.")}
