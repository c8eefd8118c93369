"""The training loop, its loss meter, stop conditions and signals."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from types import FrameType

import numpy as np
import torch

from regard.build import build_model
from regard.checkpoint.weights import Checkpoint, fill, gathered, save_model, unique_tensors
from regard.train.batching import StepBatches, prefetch
from regard.train.distributed import all_reduce, broadcast
from regard.train.run import TrainingRun
from regard.train.state import checkpoints, local, remove_old, save_state
from regard.train.step import learning_rate
from regard.train.validate import validate

# Steps after which several processes agree whether one has received a signal.
SYNC_EVERY = 10


class RunStoppedError(Exception):
    """The run was stopped by a signal, and has saved its state."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class StopSignal:
    """Turns Ctrl-C and SIGTERM into a stop after the current step; a second one stops at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.before: dict[int, object] = {}

    def __enter__(self) -> "StopSignal":
        # Signals reach the main thread alone: a run in another one is stopped by whoever started it.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def received_by_any(self, run: TrainingRun) -> int | None:
        """Return the signal that any process has received; all must stop after the same step."""
        if run.world.size == 1:
            return self.received
        if run.progress.step % SYNC_EVERY:
            return None
        flags = torch.tensor([self.received == signal.SIGINT, self.received == signal.SIGTERM], device=run.device)
        interrupted, terminated = all_reduce(flags.int(), run.world).tolist()
        return signal.SIGTERM if terminated else signal.SIGINT if interrupted else None

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.received is not None:
            raise RunStoppedError(number)
        self.received = number


@dataclass(frozen=True)
class StepPosition:
    """The position of a step in a run."""

    step: int
    epoch: int
    batch: int
    first: int  # pair of the step's first batch


class LossMeter:
    """Sums losses between log lines, so that the device is not synchronised at every step."""

    def __init__(self, run: TrainingRun):
        self.run = run
        self.pending: list[tuple[torch.Tensor, int, StepPosition]] = []  # this process's sum, the tokens of all
        self.last: StepPosition | None = None
        self.tokens = 0
        self.since = time.perf_counter()

    def add(self, loss_sum: torch.Tensor, n_tokens: int, lr: float, position: StepPosition) -> None:
        """Add one step; log every `log_every` steps. A loss that is not finite stops the run."""
        run, step = self.run, self.run.progress.step
        self.pending.append((loss_sum.detach(), n_tokens, position))
        self.last = position
        self.tokens += n_tokens
        if run.device.type == "cpu" or step % run.settings.train.log_every == 0:
            self.read_pending()
        if step % run.settings.train.log_every:
            return
        loss, n = all_reduce(torch.tensor(run.progress.unreported, dtype=torch.float64, device=run.device), run.world)
        mean = float(loss) / float(n) * run.world.size  # every process has counted the tokens of all
        run.progress.unreported = (0.0, 0)
        run.progress.losses.append((step, mean))
        run.log.step(step, mean, lr, self.tokens / (time.perf_counter() - self.since))
        self.tokens, self.since = 0, time.perf_counter()

    def read_pending(self) -> None:
        """Read the pending losses; raise ValueError at the first that is not finite."""
        pending, self.pending = self.pending, []
        losses = torch.stack([loss_sum for loss_sum, _, _ in pending]).tolist() if pending else []
        for loss, (_, n, position) in zip(losses, pending, strict=True):
            if not np.isfinite(loss):
                raise ValueError(
                    f"the loss is not finite ({loss}) at {describe_step(self.run, position)}; {self.advice()}"
                )
            sum_, tokens = self.run.progress.unreported
            self.run.progress.unreported = (sum_ + loss, tokens + n)

    def check(self) -> None:
        """Raise ValueError before a model is validated or saved whose parameters are not finite."""
        if self.last is None:
            return
        self.read_pending()
        tensors = [*unique_tensors(self.run.model).values(), *optimiser_state(self.run)]
        if not all(bool(local(tensor).isfinite().all()) for tensor in tensors):
            raise ValueError(
                f"the parameters are not finite after {describe_step(self.run, self.last)}; {self.advice()}"
            )

    def advice(self) -> str:
        """Return what a user can do after such an error."""
        saved = checkpoints(self.run.folder / "checkpoints")
        if not saved:
            return "no checkpoint was written: start again with a lower train.lr, or with train.clip"
        return (
            f"the last good checkpoint, {saved[-1].name}, is kept: "
            "continue with --resume and a lower train.lr, or with train.clip"
        )


def optimiser_state(run: TrainingRun) -> Iterator[torch.Tensor]:
    """Yield the tensors that the optimiser keeps for each parameter."""
    for state in run.optimiser.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def describe_step(run: TrainingRun, position: StepPosition) -> str:
    """Return a step's position in words, with the beginning of its first sentence."""
    side = "src" if run.settings.data.form == "pairs" else "tgt"
    store = run.dataset.train
    ids = [int(i) for i in (store.src if side == "src" else store.tgt)(position.first)]
    text = run.dataset.tokenizer.decode(ids, side)[:60]
    return (
        f"step {position.step} (epoch {position.epoch}, batch {position.batch}, first pair {position.first}: {text!r})"
    )


def train_loop(run: TrainingRun) -> str:
    """Take steps until there is a reason to stop, and return the reason."""
    losses, settings, progress = LossMeter(run), run.settings.train, run.progress
    began, before = time.perf_counter(), progress.seconds
    steps = prefetch(run.dataset.train, run.settings, run.world, run.device, (progress.epoch, progress.batch))
    with StopSignal() as signals, closing(steps):
        for batches in steps:
            reason = stop_reason(run)
            if reason is not None:
                break
            take_step(run, batches, losses)
            progress.seconds = before + time.perf_counter() - began
            if progress.step % settings.valid_every == 0:
                losses.check()
                validate_and_keep(run)
            received = signals.received_by_any(run)
            if progress.step % settings.save_every == 0 or received is not None:
                losses.check()
                save_checkpoint(run)
            if received is not None:
                raise RunStoppedError(received)
        else:
            reason = stop_reason(run) or f"all {settings.max_epochs} epochs are done"
        losses.check()
    return reason


def take_step(run: TrainingRun, batches: StepBatches, losses: LossMeter) -> None:
    """Take one optimiser step and update the progress."""
    progress, settings = run.progress, run.settings.train
    progress.step += 1
    lr = learning_rate(progress.step, settings, progress.seconds)
    torch.manual_seed(step_seed(settings.seed, progress.step, run.world.rank))
    loss_sum = run.step(batches, lr)
    if run.ema is not None:
        run.ema.update(progress.step)
    progress.epoch, progress.batch = batches.epoch, batches.batch
    progress.tokens += batches.n_tokens
    losses.add(loss_sum, batches.n_tokens, lr, StepPosition(progress.step, batches.epoch, batches.batch, batches.first))


def step_seed(*numbers: int) -> int:
    """Mix numbers into a seed: a step's randomness depends on the run's seed, its number and its process alone."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] // 2)


def validate_and_keep(run: TrainingRun) -> None:
    """Validate in the main process, keep the model if it is the best so far, and broadcast whether it is."""
    progress = run.progress
    better = 0.0
    checkpoint = model_to_validate(run)
    if checkpoint is not None:
        n = run.settings.train.valid_sentences
        validation = validate(checkpoint, run.dataset.valid, run.dataset.valid_pairs[:n])
        value = validation.value(run.settings.train.stop_on)
        better = float(progress.best is None or value > progress.best)
        progress.valid.append({"step": progress.step, **validation.scores})
        run.log.validation(progress, str(validation), validation.samples)
        if better:
            progress.best = value
            about = {"valid": validation.scores, "step": progress.step}
            save_model(run.folder / "model", checkpoint, about)
    progress.judged = progress.step
    if broadcast(better, run.world):
        progress.bad, progress.best_step = 0, progress.step
    else:
        progress.bad += 1


def model_to_validate(run: TrainingRun) -> Checkpoint | None:
    """Return the model to validate, in the main process: with the moving average of the parameters if there is one.

    Shards are gathered by all processes, into a model of the main process.
    """
    settings = run.settings
    if run.ema is None and not settings.train.shard:
        return run.checkpoint() if run.world.is_main else None
    tensors = gathered(unique_tensors(run.model) if run.ema is None else run.ema.mean)
    if not run.world.is_main:
        return None
    tokenizer = run.dataset.tokenizer
    model = build_model(settings.model, (tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt"))).to(run.device)
    fill(model, tensors, run.folder)
    return replace(run.checkpoint(), model=model)


def save_checkpoint(run: TrainingRun) -> None:
    """Write a checkpoint and remove old ones."""
    folder = run.folder / "checkpoints"
    loss, n = run.progress.unreported
    # All processes resume from what one saves, so each keeps its share of the sum.
    run.progress.unreported = (
        float(all_reduce(torch.tensor(loss, dtype=torch.float64, device=run.device), run.world)) / run.world.size,
        n,
    )
    save_state(folder, run.model, run.optimiser, run.ema, run.progress, run.world.is_main)
    if run.world.is_main:
        remove_old(folder, max(run.settings.train.keep, run.settings.train.average))


def stop_reason(run: TrainingRun) -> str | None:
    """Return the reason to stop now, if there is one."""
    progress, settings = run.progress, run.settings.train
    if settings.max_steps is not None and progress.step >= settings.max_steps:
        return f"all {settings.max_steps} steps are done"
    if settings.max_minutes is not None and progress.seconds >= 60 * settings.max_minutes:
        return f"all {settings.max_minutes:g} minutes are over"
    if settings.patience is not None and progress.bad >= settings.patience:
        return f"no improvement in {progress.bad} validations, the best was at step {progress.best_step}"
    return None
