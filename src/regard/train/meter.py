"""The losses of a run between two reports, which must be numbers."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from regard.checkpoint import unique_tensors
from regard.train.distributed import total
from regard.train.run import Run
from regard.train.state import checkpoints, local


@dataclass(frozen=True)
class Place:
    """Where in a run a step was taken."""

    step: int
    epoch: int
    batch: int
    first: int  # pair of the step's first batch


class LossMeter:
    """Adds up losses between reports, so that a device need not be asked at every step."""

    def __init__(self, run: Run):
        self.run = run
        self.waiting: list[tuple[torch.Tensor, int, Place]] = []  # this process's sum, the tokens of all
        self.last: Place | None = None
        self.tokens = 0
        self.since = time.perf_counter()

    def add(self, told: torch.Tensor, n_tokens: int, lr: float, place: Place) -> None:
        """Takes in one step; reports every `log_every` steps. A loss that is no number stops the run."""
        run, step = self.run, self.run.progress.step
        self.waiting.append((told.detach(), n_tokens, place))
        self.last = place
        self.tokens += n_tokens
        if run.device.type == "cpu" or step % run.settings.train.log_every == 0:
            self.settle()
        if step % run.settings.train.log_every:
            return
        loss, n = total(torch.tensor(run.progress.unreported, dtype=torch.float64, device=run.device), run.team)
        mean = float(loss) / float(n) * run.team.world  # every process has counted the tokens of all
        run.progress.unreported = (0.0, 0)
        run.progress.losses.append((step, mean))
        run.watch.step(step, mean, lr, self.tokens / (time.perf_counter() - self.since))
        self.tokens, self.since = 0, time.perf_counter()

    def settle(self) -> None:
        """Reads the losses that wait, and stops the run at the first that is no number."""
        waiting, self.waiting = self.waiting, []
        losses = torch.stack([told for told, _, _ in waiting]).tolist() if waiting else []
        for loss, (_, n, place) in zip(losses, waiting, strict=True):
            if not np.isfinite(loss):
                raise ValueError(f"the loss is no number at {name_place(self.run, place)}; {self.way_out()}")
            sum_, tokens = self.run.progress.unreported
            self.run.progress.unreported = (sum_ + loss, tokens + n)

    def check(self) -> None:
        """Stops the run before a model is judged or saved whose parameters are no numbers."""
        if self.last is None:
            return
        self.settle()
        tensors = [*unique_tensors(self.run.model).values(), *optimiser_memory(self.run)]
        if not all(bool(local(tensor).isfinite().all()) for tensor in tensors):
            raise ValueError(f"the parameters are no numbers after {name_place(self.run, self.last)}; {self.way_out()}")

    def way_out(self) -> str:
        """Words what to do now."""
        saved = checkpoints(self.run.folder / "checkpoints")
        if not saved:
            return "no checkpoint was written before: begin anew with a lower train.lr, or with train.clip"
        return (
            f"the last good checkpoint, {saved[-1].name}, is kept: "
            "go on from it with --resume and a lower train.lr, or with train.clip"
        )


def optimiser_memory(run: Run) -> Iterator[torch.Tensor]:
    """Gives the tensors that the optimiser keeps of each parameter."""
    for state in run.optimiser.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def name_place(run: Run, place: Place) -> str:
    """Words where a step was taken, and on what."""
    side = "src" if run.settings.data.form == "pairs" else "tgt"
    store = run.prepared.train
    ids = [int(i) for i in (store.src if side == "src" else store.tgt)(place.first)]
    text = run.prepared.tokenizer.decode(ids, side)[:60]
    return f"step {place.step} (epoch {place.epoch}, batch {place.batch}, first pair {place.first}: {text!r})"
