"""Training on numbered examples: the loop of tasks whose data fits in memory."""

import math
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor, nn

from regard.config import TrainSettings
from regard.shapes import Float, Int
from regard.train.step import learning_rate, make_optimiser, run_step, set_rate

Loss = Callable[[Int[Tensor, " B"]], Float[Tensor, ""]]  # from the numbers of some examples to their mean loss
Evaluate = Callable[[], float]  # the score on held-out examples: more is better


@dataclass(frozen=True)
class ExampleSettings:
    """How a model is trained on examples."""

    epochs: int = 20
    batch: int = 64  # examples in one step
    lr: float = 1e-3  # at the end of the warm-up; it then falls to 0 along a cosine
    warmup: float = 0.1  # share of all steps
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class EpochResult:
    """The result of one epoch."""

    epoch: int
    loss: float  # mean of its steps
    score: float
    seconds: float  # since training began


def train_on_examples(
    model: nn.Module, n_examples: int, loss: Loss, evaluate: Evaluate, settings: ExampleSettings
) -> Iterator[EpochResult]:
    """Train epoch by epoch and yield the result of each; in the end restore the weights of the best score.

    Randomness depends on the seed alone. The device is the model's: `loss` and `evaluate` bring their own data to it.
    """
    check_examples(settings, n_examples)
    torch.manual_seed(settings.seed)
    steps, numbered = _steps(settings, n_examples), count(1)
    optimiser, module = make_optimiser(model, steps), _ExampleLoss(model, loss)
    order = torch.Generator().manual_seed(settings.seed)
    best, best_state, began = -math.inf, model.state_dict(), time.perf_counter()
    for epoch in range(settings.epochs):
        model.train()
        losses = []
        for numbers in torch.randperm(n_examples, generator=order).split(settings.batch):
            set_rate(optimiser, learning_rate(next(numbered), steps))
            losses.append(run_step(module, optimiser, [numbers], 1.0, steps))
        model.eval()
        with torch.no_grad():
            score = evaluate()
        if score > best:
            best, best_state = score, deepcopy(model.state_dict())
        yield EpochResult(epoch, float(torch.stack(losses).mean()), score, time.perf_counter() - began)
    model.load_state_dict(best_state)


def check_examples(settings: ExampleSettings, n_examples: int) -> None:
    """Raise ValueError for a number that is out of range."""
    if min(settings.epochs, settings.batch, n_examples) < 1:
        values = f"{settings.epochs}, {settings.batch} and {n_examples}"
        raise ValueError(f"epochs, batch and the number of examples must be 1 or more, got {values}")
    if settings.lr <= 0 or settings.clip <= 0:
        raise ValueError(f"lr and clip must be positive, got {settings.lr} and {settings.clip}")
    if not 0 <= settings.warmup < 1:
        raise ValueError(f"warmup is a share of all steps and must lie in [0, 1), got {settings.warmup}")


class _ExampleLoss(nn.Module):
    """A model with its loss, as `run_step` takes it."""

    def __init__(self, model: nn.Module, loss: Loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, numbers: Int[Tensor, " B"]) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        loss = self.loss(numbers)
        return loss, loss.detach()


def _steps(settings: ExampleSettings, n_examples: int) -> TrainSettings:
    """Return the settings of the trainer, which count steps."""
    n = settings.epochs * math.ceil(n_examples / settings.batch)
    return TrainSettings(
        lr=settings.lr,
        schedule="cosine",
        warmup=math.ceil(n * settings.warmup),
        max_steps=n,
        weight_decay=settings.weight_decay,
        clip=settings.clip,
        precision="float32",  # a loss chooses its own
    )
