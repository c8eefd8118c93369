"""The same task learned again and again: by each way of telling places, with each seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.config import ModelSettings, PartSettings
from regard.model.classifier import Classifier
from regard.study.encoder_parts import build_classifier, build_places
from regard.study.task import Examples, Task
from regard.study.told import Told, tell
from regard.train.examples import ExampleSettings, Lesson, learn_examples

AT_ONCE = 512  # examples in one pass that learns nothing
SHUFFLE = 12345  # draws the control's order, the same in every trial


@dataclass(frozen=True)
class TaskSettings:
    """What learns a task, and how."""

    model: ModelSettings
    learn: ExampleSettings
    pool: str = "class"
    base: float = 10000.0  # of the wavelengths, where a scheme has any; short axes want short waves


@dataclass(frozen=True)
class Trial:
    """What came of learning once; the model is as it was when validation was best."""

    told: Told
    seed: int
    parameters: int
    valid: float
    test: float
    shuffled: float  # on the test, with the tokens of each example shuffled and the places left where they were
    lessons: list[Lesson]


def run_trials(
    task: Task, ways: Sequence[Told], settings: TaskSettings, seeds: Sequence[int], device: torch.device
) -> Iterator[tuple[Trial, Classifier]]:
    """Learns the task in every way with every seed."""
    for told in ways:
        for seed in seeds:
            yield run_trial(task, told, settings, seed, device)


def run_trial(
    task: Task, told: Told, settings: TaskSettings, seed: int, device: torch.device
) -> tuple[Trial, Classifier]:
    """Learns once; which epoch's model is kept, validation decides."""
    model = make_model(task, told, settings, seed).to(device)
    train, valid, test = (part.to(device) for part in (task.train, task.valid, task.test))
    draws = torch.Generator().manual_seed(seed)

    def loss(numbers: Tensor) -> Tensor:
        batch = train.some(numbers.to(device))
        if task.vary is not None:
            batch = replace(batch, tokens=task.vary(batch.tokens, draws))
        return F.cross_entropy(read(model, task, told, batch), batch.labels)

    def judge() -> float:
        return accuracy(model, task, told, valid)

    learn = replace(settings.learn, seed=seed)
    lessons = list(learn_examples(model, len(train), loss, judge, learn))
    trial = Trial(
        told=told,
        seed=seed,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        valid=max(lesson.score for lesson in lessons),
        test=accuracy(model, task, told, test),
        shuffled=accuracy(model, task, told, test.shuffled(SHUFFLE)),
        lessons=lessons,
    )
    return trial, model


def make_model(task: Task, told: Told, settings: TaskSettings, seed: int) -> Classifier:
    """Makes the model that one trial begins with."""
    torch.manual_seed(seed)
    chosen = replace(settings.model, position=PartSettings(told.scheme))
    places = task.train.places
    position = build_places(chosen, int(places.amax()) + 1, int(places[..., -1].amax()) + 1, settings.base)
    reads = "patches" if task.train.tokens.is_floating_point() else "ids"
    return build_classifier(chosen, position, task.size, len(task.classes), reads, settings.pool)


def read(model: Classifier, task: Task, told: Told, examples: Examples) -> Float[Tensor, "N C"]:
    """Gives the logits of some examples; only where there is padding is the model told of it."""
    full = bool((examples.lengths == examples.tokens.shape[1]).all())
    places = tell(told, task.axes, examples.places)
    return model(examples.tokens, places, None if full else examples.lengths)


@torch.no_grad()
def accuracy(model: Classifier, task: Task, told: Told, examples: Examples) -> float:
    """Gives the share of examples whose likeliest class is right."""
    model.eval()
    numbers = torch.arange(len(examples), device=examples.labels.device).split(AT_ONCE)
    said = [read(model, task, told, batch).argmax(dim=-1) for batch in map(examples.some, numbers)]
    return int((torch.cat(said) == examples.labels).sum()) / len(examples)
