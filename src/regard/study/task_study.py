"""What came of a task: how often each way of telling places was right, over the seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from regard.model.classifier import Classifier
from regard.study.bound import best_possible
from regard.study.signature import signature
from regard.study.spread import Spread, spread
from regard.study.task import Task
from regard.study.told import Told, tell
from regard.study.trials import TaskSettings, Trial
from regard.trace.classifier import class_weights


@dataclass(frozen=True)
class Row:
    """One way of telling places, over the seeds."""

    name: str
    coordinates: tuple[str, ...]
    parameters: int
    bound: float  # no reader of sets that is told these coordinates can be right more often, on this very test
    valid: Spread
    test: Spread
    shuffled: Spread
    trials: list[Trial]


@dataclass(frozen=True, eq=False)
class Seen:
    """What the first way's first model looked at in one test example, and what it said."""

    number: int
    tokens: Shaped[Tensor, "T *P"]
    places: Int[Tensor, "T A"]
    weights: Float[Tensor, "L H T"]
    right: str
    said: str


@dataclass(frozen=True, eq=False)
class TaskStudy:
    """All of it, with what it was measured by."""

    task: str
    classes: tuple[str, ...]
    axes: tuple[str, ...]
    n_train: int
    n_valid: int
    n_test: int
    chance: float  # how often blind guessing is right
    settings: TaskSettings
    rows: list[Row]
    seen: list[Seen]
    signature: dict[str, Any]

    def row(self, name: str) -> Row | None:
        """Finds a way by its name."""
        return next((row for row in self.rows if row.name == name), None)


def conclude(
    task: Task, settings: TaskSettings, found: Sequence[tuple[Trial, Classifier]], show: Sequence[int]
) -> TaskStudy:
    """Sums trials up by their way, in the order in which they came, and looks into the first model."""
    ways = list(dict.fromkeys(trial.told for trial, _ in found))
    rows = [_row(task, told, [trial for trial, _ in found if trial.told == told]) for told in ways]
    (first, model), device = found[0], next(found[0][1].parameters()).device
    seeds = list(dict.fromkeys(trial.seed for trial, _ in found))
    return TaskStudy(
        task=task.name,
        classes=task.classes,
        axes=task.axes,
        n_train=len(task.train),
        n_valid=len(task.valid),
        n_test=len(task.test),
        chance=1 / len(task.classes),
        settings=settings,
        rows=rows,
        seen=[see(task, first.told, model, number) for number in show],
        signature=signature(device.type, seeds=seeds),
    )


def _row(task: Task, told: Told, trials: list[Trial]) -> Row:
    return Row(
        name=told.name,
        coordinates=told.coordinates,
        parameters=trials[0].parameters,
        bound=best_possible(task.test, tell(told, task.axes, task.test.places)),
        valid=spread(trial.valid for trial in trials),
        test=spread(trial.test for trial in trials),
        shuffled=spread(trial.shuffled for trial in trials),
        trials=trials,
    )


@torch.no_grad()
def see(task: Task, told: Told, model: Classifier, number: int) -> Seen:
    """Looks at the model while it reads one example of the test, without its padding."""
    one = task.test.some(torch.tensor([number]))
    length = int(one.lengths[0])
    device = next(model.parameters()).device
    tokens = one.tokens[:, :length]
    places = one.places[:, :length]
    inputs = tokens.to(device), tell(told, task.axes, places).to(device)
    model.eval()
    said = int(model(*inputs).argmax())
    weights = class_weights(model, *inputs)
    right = task.classes[int(one.labels[0])]
    return Seen(number, tokens[0], places[0], weights, right, task.classes[said])
