"""The training loop."""

import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import torch

from regard.build import build_model
from regard.checkpoint import Checkpoint, fill, gathered, save_model, unique_tensors
from regard.train.brake import Brake, RunStoppedError
from regard.train.distributed import from_leader, total
from regard.train.feed import Group, feed
from regard.train.meter import LossMeter, Place
from regard.train.run import Run
from regard.train.schedule import learning_rate
from regard.train.state import forget_old, save_state
from regard.train.validate import Validation, validate


def learn(run: Run) -> str:
    """Takes steps until there is a reason to stop, and gives the reason."""
    losses, settings, progress = LossMeter(run), run.settings.train, run.progress
    began, before = time.perf_counter(), progress.seconds
    groups = feed(run.prepared.train, run.settings, run.team, run.device, (progress.epoch, progress.batch))
    with Brake() as brake, closing(groups):
        for group in groups:
            reason = why_stop(run)
            if reason is not None:
                break
            take_step(run, group, losses)
            progress.seconds = before + time.perf_counter() - began
            if progress.step % settings.valid_every == 0:
                losses.check()
                judge(run)
            pulled = brake.agreed(run)
            if progress.step % settings.save_every == 0 or pulled is not None:
                losses.check()
                save(run)
            if pulled is not None:
                raise RunStoppedError(pulled)
        else:
            reason = why_stop(run) or f"all {settings.max_epochs} epochs are done"
        losses.check()
    return reason


def take_step(run: Run, group: Group, losses: LossMeter) -> None:
    """Learns from some batches, and counts them."""
    progress, settings = run.progress, run.settings.train
    progress.step += 1
    lr = learning_rate(progress.step, settings, progress.seconds)
    torch.manual_seed(drawn(settings.seed, progress.step, run.team.rank))
    told = run.step(group, lr)
    if run.ema is not None:
        run.ema.update(progress.step)
    progress.epoch, progress.batch = group.epoch, group.batch
    progress.tokens += group.n_tokens
    losses.add(told, group.n_tokens, lr, Place(progress.step, group.epoch, group.batch, group.first))


def drawn(*numbers: int) -> int:
    """Mixes numbers to a seed: what a step draws depends on nothing but its seed, its number and its process."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] // 2)


def judge(run: Run) -> None:
    """Validates, and keeps the model if it is the best so far. The leader judges; all hear the verdict."""
    progress = run.progress
    better = 0.0
    checkpoint = usable(run)
    if checkpoint is not None:
        n = run.settings.train.valid_sentences
        found = validate(checkpoint, run.prepared.valid, run.prepared.valid_pairs[:n])
        value = found.value(run.settings.train.stop_on)
        better = float(progress.best is None or value > progress.best)
        progress.valid.append({"step": progress.step, **found.scores})
        run.watch.valid(progress, str(found), found.samples)
        if better:
            progress.best = value
            keep_model(run, checkpoint, found)
    progress.judged = progress.step
    if from_leader(better, run.team):
        progress.bad, progress.best_step = 0, progress.step
    else:
        progress.bad += 1


def usable(run: Run) -> Checkpoint | None:
    """Gives the leader the model that translates: the running mean of the parameters where there is one, else these.

    Shards are gathered by all processes, into a model of the leader's own.
    """
    settings = run.settings
    if run.ema is None and not settings.train.shard:
        return run.checkpoint() if run.team.leads else None
    tensors = gathered(unique_tensors(run.model) if run.ema is None else run.ema.mean)
    if not run.team.leads:
        return None
    tokenizer = run.prepared.tokenizer
    model = build_model(settings.model, (tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt"))).to(run.device)
    fill(model, tensors, run.folder)
    return replace(run.checkpoint(), model=model)


def keep_model(run: Run, checkpoint: Checkpoint, found: Validation) -> None:
    """Saves the model that is used."""
    save_model(run.folder / "model", checkpoint, {"valid": found.scores, "step": run.progress.step})


def save(run: Run) -> None:
    """Writes a checkpoint and forgets old ones."""
    folder = run.folder / "checkpoints"
    loss, n = run.progress.unreported
    # What one process saves all of them go on with, so each keeps its share of the sum.
    run.progress.unreported = (
        float(total(torch.tensor(loss, dtype=torch.float64, device=run.device), run.team)) / run.team.world,
        n,
    )
    save_state(folder, run.model, run.optimiser, run.ema, run.progress, run.team.leads)
    if run.team.leads:
        forget_old(folder, max(run.settings.train.keep, run.settings.train.average))


def why_stop(run: Run) -> str | None:
    """Gives the reason to stop now, if there is one."""
    progress, settings = run.progress, run.settings.train
    if settings.max_steps is not None and progress.step >= settings.max_steps:
        return f"all {settings.max_steps} steps are done"
    if settings.max_minutes is not None and progress.seconds >= 60 * settings.max_minutes:
        return f"all {settings.max_minutes:g} minutes are over"
    if settings.patience is not None and progress.bad >= settings.patience:
        return f"no better validation in {progress.bad}, the best was at step {progress.best_step}"
    return None
