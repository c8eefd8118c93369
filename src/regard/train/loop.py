"""The training loop."""

import math
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from types import FrameType

import numpy as np
import torch
from numpy.typing import NDArray

from regard.batch import Batch, make_batch
from regard.checkpoint import save_model
from regard.train.distributed import from_leader, total
from regard.train.plan import plan_epoch, share
from regard.train.run import Run
from regard.train.schedule import learning_rate
from regard.train.state import forget_old, save_state
from regard.train.step import run_step
from regard.train.validate import Validation, validate


class RunStoppedError(Exception):
    """The run was asked to stop by a signal, and has saved where it stands."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


def learn(run: Run) -> str:
    """Takes steps until there is a reason to stop, and gives the reason."""
    progress, settings = run.progress, run.settings.train
    losses = LossMeter(run)
    with Brake() as brake:
        for indices in groups(run):
            began = time.perf_counter()
            batches, n_tokens = collate(run, indices)
            progress.step += 1
            lr = learning_rate(progress.step, settings)
            told = run_step(run.learner, run.optimiser, batches, n_tokens, settings, run.team, lr)
            if run.ema is not None:
                run.ema.update(run.model, progress.step)
            progress.batch += len(indices)
            progress.tokens += n_tokens
            progress.seconds += time.perf_counter() - began
            losses.add(told, n_tokens, lr, indices)
            if progress.step % settings.valid_every == 0:
                judge(run)
            if progress.step % settings.save_every == 0:
                save(run)
            reason = why_stop(run)
            if reason is not None:
                return reason
            if brake.pulled is not None:
                save(run)
                raise RunStoppedError(brake.pulled)
    return f"all {settings.max_epochs} epochs are done"


def groups(run: Run) -> Iterator[list[NDArray[np.int64]]]:
    """Gives the batches of each step from where the run stands, epoch after epoch, the same ones whoever asks."""
    progress, settings = run.progress, run.settings.train
    lengths = run.prepared.train.lengths()
    while settings.max_epochs is None or progress.epoch < settings.max_epochs:
        plan = plan_epoch(lengths, settings.batch_tokens * run.team.world, settings.seed, progress.epoch)
        while progress.batch < len(plan.batches):
            yield plan.batches[progress.batch : progress.batch + settings.accumulate]
        progress.epoch, progress.batch = progress.epoch + 1, 0


def collate(run: Run, indices: list[NDArray[np.int64]]) -> tuple[list[Batch], int]:
    """Makes this process's part of each batch, and counts the tokens of all processes."""
    store, team = run.prepared.train, run.team
    n_tokens = sum(int(sum(len(store.tgt(i)) + 1 for i in batch)) for batch in indices)
    batches = []
    for batch in indices:
        mine = share(batch, team.rank, team.world)
        # A process without a row of its own still takes part, with a row that counts for nothing.
        rows = mine if len(mine) else batch[:1]
        made = make_batch([store.src(i) for i in rows], [store.tgt(i) for i in rows])
        if not len(mine):
            made.tgt.real.zero_()
        batches.append(made.to(run.device))
    return batches, n_tokens


def judge(run: Run) -> None:
    """Validates, and keeps the model if it is the best so far. The leader judges; all hear the verdict."""
    progress = run.progress
    better = 0.0
    if run.team.leads or run.settings.train.shard:  # a sharded model is run by all processes together
        found = validate_mean(run)
        value = found.bleu if run.settings.train.stop_on == "bleu" else -found.loss
        better = float(progress.best is None or value > progress.best)
        row = {"step": progress.step, "loss": found.loss, "bleu": found.bleu, "chrf": found.chrf}
        progress.valid.append(row)
        run.watch.valid(progress, found.samples)
        if better:
            progress.best = value
            keep_model(run, found)
    if from_leader(better, run.team):
        progress.bad, progress.best_step = 0, progress.step
    else:
        progress.bad += 1


def validate_mean(run: Run) -> Validation:
    """Validates the running mean of the parameters where there is one, else the parameters."""
    prepared, n = run.prepared, run.settings.train.valid_sentences
    with averaged(run):
        return validate(run.checkpoint(), prepared.valid, prepared.valid_pairs[:n])


def keep_model(run: Run, found: Validation) -> None:
    """Saves the model that translates."""
    scores = {key: value for key, value in asdict(found).items() if key != "samples"}
    with averaged(run):
        save_model(run.folder / "model", run.checkpoint(), {"valid": scores, "step": run.progress.step}, run.team.leads)


class averaged:  # noqa: N801 (used as a verb)
    """Puts the running mean into the model for a while."""

    def __init__(self, run: Run):
        self.run = run
        self.own: dict[str, torch.Tensor] = {}

    def __enter__(self) -> None:
        if self.run.ema is not None:
            state = self.run.model.state_dict()
            self.own = {name: tensor.clone() for name, tensor in state.items()}
            self.run.model.load_state_dict(self.run.ema.mean, strict=False)

    def __exit__(self, *_: object) -> None:
        if self.own:
            self.run.model.load_state_dict(self.own)


def save(run: Run) -> None:
    """Writes a checkpoint and forgets old ones."""
    folder = run.folder / "checkpoints"
    save_state(folder, run.model, run.optimiser, run.ema, run.progress, run.team.leads)
    if run.team.leads:
        forget_old(folder, max(run.settings.train.keep, run.settings.train.average))


def why_stop(run: Run) -> str | None:
    """Gives the reason to stop now, if there is one."""
    progress, settings = run.progress, run.settings.train
    if settings.max_steps is not None and progress.step >= settings.max_steps:
        return f"all {settings.max_steps} steps are done"
    if settings.patience is not None and progress.bad >= settings.patience:
        return f"no better validation in {progress.bad}, the best was at step {progress.best_step}"
    return None


class LossMeter:
    """Adds up losses between reports, so that a device need not be asked at every step."""

    def __init__(self, run: Run):
        self.run = run
        self.sums: list[torch.Tensor] = []
        self.tokens = 0
        self.since = time.perf_counter()

    def add(self, told: torch.Tensor, n_tokens: int, lr: float, indices: list[NDArray[np.int64]]) -> None:
        """Takes in one step; reports every `log_every` steps. A loss that is no number stops the run."""
        run, step = self.run, self.run.progress.step
        self.sums.append(told.detach())
        self.tokens += n_tokens
        if run.device.type == "cpu" and not math.isfinite(float(told)):
            raise ValueError(name_batch(run, indices))
        if step % run.settings.train.log_every:
            return
        mean = float(total(torch.stack(self.sums).sum(), run.team)) / self.tokens
        if not math.isfinite(mean):
            raise ValueError(name_batch(run, indices))
        run.progress.losses.append((step, mean))
        run.watch.step(step, mean, lr, self.tokens / (time.perf_counter() - self.since))
        self.sums, self.tokens, self.since = [], 0, time.perf_counter()


def name_batch(run: Run, indices: list[NDArray[np.int64]]) -> str:
    """Words what is known of the batch whose loss is no number."""
    progress, first = run.progress, int(indices[0][0])
    text = run.prepared.tokenizer.decode([int(i) for i in run.prepared.train.src(first)], "src")
    return (
        f"the loss is no number at step {progress.step} (epoch {progress.epoch}, batch {progress.batch}, first pair "
        f"{first}: {text[:60]!r}); the last good checkpoint is kept: lower train.lr or set train.clip, then --resume"
    )


class Brake:
    """Turns Ctrl-C and SIGTERM into a stop after the step at hand."""

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

    def _pull(self, number: int, _: FrameType | None) -> None:
        self.pulled = number
