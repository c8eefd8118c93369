"""Stopping on demand: a signal becomes a stop after the step at hand."""

import signal
from types import FrameType

import torch

from regard.train.distributed import total
from regard.train.run import Run

# Steps between two times that several processes ask each other whether one was told to stop.
ASK_EVERY = 10


class RunStoppedError(Exception):
    """The run was asked to stop by a signal, and has saved where it stands."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Brake:
    """Turns Ctrl-C and SIGTERM into a stop after the step at hand; a second one stops at once."""

    def __init__(self) -> None:
        self.pulled: int | None = None
        self.before: dict[int, object] = {}

    def __enter__(self) -> "Brake":
        for number in (signal.SIGINT, signal.SIGTERM):
            self.before[number] = signal.signal(number, self._pull)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def agreed(self, run: Run) -> int | None:
        """Gives the signal that this process was sent, or any of several, which must stop after the same step."""
        if run.team.world == 1:
            return self.pulled
        if run.progress.step % ASK_EVERY:
            return None
        asked = torch.tensor([self.pulled == signal.SIGINT, self.pulled == signal.SIGTERM], device=run.device)
        interrupted, terminated = total(asked.int(), run.team).tolist()
        return signal.SIGTERM if terminated else signal.SIGINT if interrupted else None

    def _pull(self, number: int, _: FrameType | None) -> None:
        if self.pulled is not None:
            raise RunStoppedError(number)
        self.pulled = number
