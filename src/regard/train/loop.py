"""The training loop."""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np
import torch
from numpy.typing import NDArray

from regard.batch import Batch, Ids, make_batch
from regard.build import build_model
from regard.checkpoint import Checkpoint, fill, gathered, save_model, unique_tensors
from regard.train.brake import Brake, RunStoppedError
from regard.train.distributed import from_leader, total
from regard.train.meter import LossMeter, Place
from regard.train.plan import plan_epoch, share
from regard.train.run import Run
from regard.train.schedule import learning_rate
from regard.train.state import forget_old, save_state
from regard.train.step import run_step
from regard.train.validate import Validation, validate


def learn(run: Run) -> str:
    """Takes steps until there is a reason to stop, and gives the reason."""
    losses, settings = LossMeter(run), run.settings.train
    with Brake() as brake:
        for indices in groups(run):
            reason = why_stop(run)
            if reason is not None:
                break
            take_step(run, indices, losses)
            if run.progress.step % settings.valid_every == 0:
                losses.check()
                judge(run)
            pulled = brake.agreed(run)
            if run.progress.step % settings.save_every == 0 or pulled is not None:
                losses.check()
                save(run)
            if pulled is not None:
                raise RunStoppedError(pulled)
        else:
            reason = why_stop(run) or f"all {settings.max_epochs} epochs are done"
        losses.check()
    return reason


def take_step(run: Run, indices: list[NDArray[np.int64]], losses: LossMeter) -> None:
    """Learns from some batches, and counts them."""
    progress, settings = run.progress, run.settings.train
    began = time.perf_counter()
    progress.step += 1
    batches, n_tokens = collate(run, indices)
    lr = learning_rate(progress.step, settings)
    torch.manual_seed(drawn(settings.seed, progress.step, run.team.rank))
    told = run_step(run.learner, run.optimiser, batches, n_tokens, settings, run.team, lr)
    if run.ema is not None:
        run.ema.update(run.model, progress.step)
    progress.batch += len(indices)
    progress.tokens += n_tokens
    progress.seconds += time.perf_counter() - began
    losses.add(told, n_tokens, lr, Place(progress.step, progress.epoch, progress.batch, int(indices[0][0])))


def drawn(*numbers: int) -> int:
    """Mixes numbers to a seed: what a step draws depends on nothing but its seed, its number and its process."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] // 2)


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
    team, n_tokens = run.team, 0
    batches = []
    for k, batch in enumerate(indices):
        src, tgt = read_pairs(run, batch, k)
        n_tokens += sum(len(ids) + 1 for ids in tgt)
        mine = share(np.arange(len(batch)), team.rank, team.world)
        # A process without a row of its own still takes part, with a row that counts for nothing.
        rows = mine if len(mine) else [0]
        made = make_batch([src[i] for i in rows], [tgt[i] for i in rows])
        if not len(mine):
            made.tgt.real.zero_()
        batches.append(made.to(run.device))
    return batches, n_tokens


def read_pairs(run: Run, batch: NDArray[np.int64], k: int) -> tuple[list[Ids], list[Ids]]:
    """Reads the pairs of one batch, cut into pieces by chance where the settings say so."""
    store, strength, max_len = run.prepared.train, run.settings.text.sampling, run.settings.text.max_len
    sides: list[list[Ids]] = [[store.src(i) for i in batch.tolist()], [store.tgt(i) for i in batch.tolist()]]
    if strength > 0.0:
        for place, side in enumerate(("src", "tgt")):
            texts = [run.prepared.tokenizer.decode([int(i) for i in ids], side) for ids in sides[place]]
            seed = drawn(run.settings.train.seed, run.progress.step, k, place)
            sampled = run.prepared.tokenizer.sample(texts, side, strength, seed)
            sides[place] = [b if len(b) <= max_len else a for a, b in zip(sides[place], sampled, strict=True)]
    return sides[0], sides[1]


def judge(run: Run) -> None:
    """Validates, and keeps the model if it is the best so far. The leader judges; all hear the verdict."""
    progress = run.progress
    better = 0.0
    checkpoint = usable(run)
    if checkpoint is not None:
        n = run.settings.train.valid_sentences
        found = validate(checkpoint, run.prepared.valid, run.prepared.valid_pairs[:n])
        value = found.bleu if run.settings.train.stop_on == "bleu" else -found.loss
        better = float(progress.best is None or value > progress.best)
        row = {"step": progress.step, "loss": found.loss, "bleu": found.bleu, "chrf": found.chrf}
        progress.valid.append(row)
        run.watch.valid(progress, found.samples)
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
    """Saves the model that translates."""
    scores = {key: value for key, value in asdict(found).items() if key != "samples"}
    save_model(run.folder / "model", checkpoint, {"valid": scores, "step": run.progress.step})


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
    if settings.patience is not None and progress.bad >= settings.patience:
        return f"no better validation in {progress.bad}, the best was at step {progress.best_step}"
    return None
