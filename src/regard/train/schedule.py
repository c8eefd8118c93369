"""The learning rate over the steps of a run."""

import math
from collections.abc import Callable

from regard.config import TrainSettings, choose


def inverse_sqrt(step: int, settings: TrainSettings, seconds: float) -> float:
    """Rises in a line to 1 at `warmup`, then falls with the root of the step (arXiv:1706.03762, 5.3)."""
    warmup = max(settings.warmup, 1)
    return min(step / warmup, math.sqrt(warmup / max(step, 1)))


def cosine(step: int, settings: TrainSettings, seconds: float) -> float:
    """Rises in a line to 1 at `warmup`, then falls along half a cosine to 0 at `max_steps` or `max_minutes`."""
    if step < settings.warmup:
        return step / settings.warmup
    shares = [0.0]
    if settings.max_steps is not None:
        shares.append((step - settings.warmup) / max(settings.max_steps - settings.warmup, 1))
    if settings.max_minutes is not None:
        shares.append(seconds / 60 / settings.max_minutes)
    return 0.5 * (1 + math.cos(math.pi * min(max(shares), 1.0)))


def constant(step: int, settings: TrainSettings, seconds: float) -> float:
    """Rises in a line to 1 at `warmup`, and stays."""
    return min(step / max(settings.warmup, 1), 1.0)


SCHEDULE: dict[str, Callable[[int, TrainSettings, float], float]] = {
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "constant": constant,
}


def learning_rate(step: int, settings: TrainSettings, seconds: float = 0.0) -> float:
    """Gives the learning rate of a step, the first being 1, so many seconds after the run began."""
    return settings.lr * choose(SCHEDULE, settings.schedule, "schedule")(step, settings, seconds)


def check_schedule(settings: TrainSettings) -> None:
    """Raises ValueError for a schedule that cannot be followed."""
    choose(SCHEDULE, settings.schedule, "schedule")
    if settings.schedule == "cosine" and settings.max_steps is None and settings.max_minutes is None:
        raise ValueError("schedule 'cosine' needs train.max_steps or train.max_minutes, where it ends, got neither")
