"""The learning rate over the steps of a run."""

import math
from collections.abc import Callable

from regard.config import TrainSettings, choose


def inverse_sqrt(step: int, settings: TrainSettings) -> float:
    """Rises in a line to 1 at `warmup`, then falls with the root of the step (arXiv:1706.03762, 5.3)."""
    warmup = max(settings.warmup, 1)
    return min(step / warmup, math.sqrt(warmup / max(step, 1)))


def cosine(step: int, settings: TrainSettings) -> float:
    """Rises in a line to 1 at `warmup`, then falls along half a cosine to 0 at `max_steps`."""
    assert settings.max_steps is not None, "checked when the schedule was chosen"
    if step < settings.warmup:
        return step / settings.warmup
    share = (step - settings.warmup) / max(settings.max_steps - settings.warmup, 1)
    return 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


def constant(step: int, settings: TrainSettings) -> float:
    """Rises in a line to 1 at `warmup`, and stays."""
    return min(step / max(settings.warmup, 1), 1.0)


SCHEDULE: dict[str, Callable[[int, TrainSettings], float]] = {
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "constant": constant,
}


def learning_rate(step: int, settings: TrainSettings) -> float:
    """Gives the learning rate of a step, the first being 1."""
    return settings.lr * choose(SCHEDULE, settings.schedule, "schedule")(step, settings)


def check_schedule(settings: TrainSettings) -> None:
    """Raises ValueError for a schedule that cannot be followed."""
    choose(SCHEDULE, settings.schedule, "schedule")
    if settings.schedule == "cosine" and settings.max_steps is None:
        raise ValueError("schedule 'cosine' needs train.max_steps, the step at which it ends, got none")
