"""Learning from numbered examples: the loop of tasks whose data fits in memory."""

import math
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import count

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import TrainSettings
from regard.train.step import learning_rate, make_optimiser, set_rate

Loss = Callable[[Int[Tensor, " B"]], Float[Tensor, ""]]  # from the numbers of some examples to their mean loss
Evaluate = Callable[[], float]  # how good the model is now, on examples that it does not learn from: more is better


@dataclass(frozen=True)
class ExampleSettings:
    """How a model learns from examples."""

    epochs: int = 20
    batch: int = 64  # examples in one step
    lr: float = 1e-3  # the highest, after the warm-up; it then falls to 0 along a cosine
    warmup: float = 0.1  # share of all steps
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class EpochResult:
    """What one epoch brought."""

    epoch: int
    loss: float  # mean of its steps
    score: float
    seconds: float  # since the first began


def train_on_examples(
    model: nn.Module, n_examples: int, loss: Loss, evaluate: Evaluate, settings: ExampleSettings
) -> Iterator[EpochResult]:
    """Learns epoch by epoch and tells of each; in the end the model is as it was when it was judged best.

    What is drawn depends on the seed alone. The device is the model's: `loss` and `judge` know where their data lies.
    """
    check_examples(settings, n_examples)
    torch.manual_seed(settings.seed)
    steps, numbered = _steps(settings, n_examples), count(1)
    optimiser = make_optimiser(model, steps)
    order = torch.Generator().manual_seed(settings.seed)
    best, kept, began = -math.inf, model.state_dict(), time.perf_counter()
    for epoch in range(settings.epochs):
        model.train()
        losses = [
            _step(model, loss(numbers), optimiser, learning_rate(next(numbered), steps), settings.clip)
            for numbers in torch.randperm(n_examples, generator=order).split(settings.batch)
        ]
        model.eval()
        with torch.no_grad():
            score = evaluate()
        if score > best:
            best, kept = score, deepcopy(model.state_dict())
        yield EpochResult(epoch, float(torch.stack(losses).mean()), score, time.perf_counter() - began)
    model.load_state_dict(kept)


def check_examples(settings: ExampleSettings, n_examples: int) -> None:
    """Raises ValueError for settings with which nothing could be learned."""
    if min(settings.epochs, settings.batch, n_examples) < 1:
        got = f"{settings.epochs}, {settings.batch} and {n_examples}"
        raise ValueError(f"epochs, batch and the number of examples must be 1 or more, got {got}")
    if settings.lr <= 0 or settings.clip <= 0:
        raise ValueError(f"lr and clip must be more than 0, got {settings.lr} and {settings.clip}")
    if not 0 <= settings.warmup < 1:
        raise ValueError(f"warmup is a share of all steps and must lie in [0, 1), got {settings.warmup}")


def _step(
    model: nn.Module, loss: Float[Tensor, ""], optimiser: torch.optim.Optimizer, lr: float, clip: float
) -> Float[Tensor, ""]:
    set_rate(optimiser, lr)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimiser.step()
    return loss.detach()


def _steps(settings: ExampleSettings, n_examples: int) -> TrainSettings:
    """Gives the same in the trainer's words, which count steps."""
    n = settings.epochs * math.ceil(n_examples / settings.batch)
    return TrainSettings(
        lr=settings.lr,
        schedule="cosine",
        warmup=math.ceil(n * settings.warmup),
        max_steps=n,
        weight_decay=settings.weight_decay,
    )
