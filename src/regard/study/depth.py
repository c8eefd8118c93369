"""How far the last output is from the first input: rounds of parallel work, found by gradients."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.study.layers import LAYERS, Call, Recurrence

LIMIT = 4096  # rounds after which a path is given up


@dataclass(frozen=True)
class Depth:
    """Of one layer at one length: rounds until it is done, and rounds until the last place knows of the first."""

    n: int
    steps: int
    path: int


def measure_depth(name: str, n: int, k: int, seed: int = 0, d: int = 4) -> Depth:
    """Measures steps and path, in float64, with parameters drawn from the seed.

    One round is all that can be done at once: a layer of attention or convolution, a cell of a recurrence at every
    place. The steps are the rounds after which nothing of the layer's own result is missing; the path is the rounds,
    in as many layers as that takes, until the last output has a gradient by the first input.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = LAYERS[name].make(d, k).double()
    x = torch.randn(1, n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    rounds = cell_rounds(layer.gru) if isinstance(layer, Recurrence) else layer_rounds(layer)
    return Depth(n, count_steps(rounds, x, layer(x).detach()), count_path(rounds, x))


Rounds = Callable[[Float[Tensor, "B T D"], int], Float[Tensor, "B T D"]]  # from the input and a number of rounds


def layer_rounds(layer: Call) -> Rounds:
    """Each round is one layer above the last."""

    def after(x: Tensor, n_rounds: int) -> Tensor:
        for _ in range(n_rounds):
            x = layer(x)
        return x

    return after


def cell_rounds(gru: nn.GRU) -> Rounds:
    """In each round every place applies the cell to its own input and to what the place before has so far."""

    def after(x: Float[Tensor, "1 T D"], n_rounds: int) -> Float[Tensor, "1 T D"]:
        states = torch.zeros_like(x)
        for _ in range(n_rounds):
            before = torch.nn.functional.pad(states[:, :-1], (0, 0, 1, 0))
            # All places at once: T sequences of one token each.
            states = gru(x.transpose(0, 1), before.contiguous())[0].transpose(0, 1)
        return states

    return after


def count_steps(rounds: Rounds, x: Float[Tensor, "1 T D"], result: Float[Tensor, "1 T D"]) -> int:
    """Counts the rounds until the layer's own result is there."""
    with torch.no_grad():
        for n_rounds in range(1, LIMIT):
            if (rounds(x, n_rounds) - result).abs().max() < 1e-12:
                return n_rounds
    raise ValueError(f"the layer's result must be there after {LIMIT} rounds, and is not")


def count_path(rounds: Rounds, x: Float[Tensor, "1 T D"]) -> int:
    """Counts the rounds until the last output depends on the first input."""
    x = x.clone().requires_grad_()
    for n_rounds in range(1, LIMIT):
        (gradient,) = torch.autograd.grad(rounds(x, n_rounds)[0, -1].sum(), x)
        if bool(gradient[0, 0].any()):
            return n_rounds
    raise ValueError(f"the last output must depend on the first input after {LIMIT} rounds, and does not")
