"""How fast does a model of one shape learn in our training step and in others?

Ceiling: the machine's rate for a large matrix product, measured in the same rounds. Forward and backward do six
operations for each weight and token: source tokens meet the encoder and the projections for the decoder, target tokens
the decoder and the vocabulary; attention's own products come on top. Padding, dropout, norms, the loss, clipping and
the optimiser count as nothing, and only real tokens count.

One step is forward, backward, clipping and a fused AdamW, over the same token-budget batches for all, with the lengths
of real sentences. Ours smooths the labels as it does in practice, the others do not. Dropout stands in the same places
(embeddings, residuals, inside the feed-forward network), but for Joey NMT, which drops attention weights too.
"""

import argparse
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from measure import Timing, interleave, keep, large_product, signature
from numpy.typing import NDArray
from peers.work import FIRST_PIECE, read_lengths, reading_flops, shape, writing_flops
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from regard.batch import PAD, Batch, make_batch
from regard.build import build_model
from regard.config import ModelSettings, TrainSettings
from regard.position.sinusoidal import sinusoids
from regard.train.distributed import Team
from regard.train.learner import Learner
from regard.train.plan import plan_epoch
from regard.train.step import make_optimiser, run_step

LR = 1e-4
AGAINST = "Marian"
Step = Callable[[], None]
Loss = Callable[[Batch], Tensor]


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` between a shared table and its transpose, as its tutorials do it."""

    codes: Tensor

    def __init__(self, sizes: ModelSettings, vocab_size: int, max_len: int = 256):
        super().__init__()
        self.table = nn.Embedding(vocab_size, sizes.d_model, padding_idx=PAD)
        nn.init.normal_(self.table.weight, std=sizes.d_model**-0.5)
        self.register_buffer("codes", sinusoids(torch.arange(max_len), sizes.d_model, 10000.0).float())
        self.dropout = nn.Dropout(sizes.dropout)
        n_layers = sizes.n_encoder_layers, sizes.n_decoder_layers
        self.inner = nn.Transformer(
            sizes.d_model, sizes.n_heads, *n_layers, sizes.d_ff, sizes.dropout, sizes.activation, batch_first=True
        )
        for module in self.inner.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0  # the others drop no attention weights

    def forward(self, batch: Batch) -> Tensor:
        src, tgt = batch.src.ids, batch.tgt.read
        future = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1], device=tgt.device)
        padded = torch.zeros_like(src, dtype=future.dtype).masked_fill(src == PAD, -torch.inf)
        x = self.inner(
            self.embed(src),
            self.embed(tgt),
            tgt_mask=future,
            src_key_padding_mask=padded,
            memory_key_padding_mask=padded,
            tgt_is_causal=True,
        )
        return F.linear(x, self.table.weight)

    def embed(self, ids: Tensor) -> Tensor:
        """Gives scaled vectors with their positions."""
        return self.dropout(self.table(ids) * self.table.embedding_dim**0.5 + self.codes[: ids.shape[1]])


def make_batches(
    lengths: NDArray[np.int64], budget: int, n_batches: int, vocab_size: int
) -> tuple[list[Batch], list[tuple[int, int]]]:
    """Plans an epoch over pairs of real lengths, and takes batches of short to long ones, with their lengths."""
    rng = np.random.default_rng(0)
    drawn = lengths[rng.integers(len(lengths), size=max(4000, 2 * budget * n_batches // int(lengths.mean())))]
    plan = plan_epoch(drawn, budget, seed=0, epoch=0)
    by_length = sorted((rows for rows in plan.batches), key=lambda rows: drawn[rows, 1].mean())
    places = np.linspace(0, len(by_length) - 1, 2 * n_batches + 1).astype(int)[1::2]

    def some(n: int) -> list[int]:
        return rng.integers(FIRST_PIECE, vocab_size, size=n).tolist()

    picked = [drawn[by_length[place]] for place in places]
    made = [make_batch([some(n) for n in rows[:, 0]], [some(n) for n in rows[:, 1]]) for rows in picked]
    return made, [(int(src) + 1, int(tgt) + 1) for rows in picked for src, tgt in rows]


def step_flops(sizes: ModelSettings, vocab_size: int, lengths: list[tuple[int, int]]) -> float:
    """Counts the operations of forward and backward, which does twice as many again."""
    return 3 * (reading_flops(sizes, [src for src, _ in lengths]) + writing_flops(sizes, vocab_size, lengths))


def regard_step(sizes: ModelSettings, vocab_size: int, batches: list[Batch], settings: TrainSettings) -> Step:
    """Makes our own step, as the training loop calls it."""
    device = batches[0].src.ids.device
    model = build_model(sizes, (vocab_size, vocab_size)).to(device)
    learner, optimiser = Learner(model, settings.label_smoothing).train(), make_optimiser(model, settings)

    def step() -> None:
        for batch in batches:
            run_step(learner, optimiser, [batch], batch.tgt.n_tokens, settings, Team(), LR)

    return step


def peer_step(model: nn.Module, loss: Loss, batches: list[Batch], settings: TrainSettings) -> Step:
    """Makes the usual step around a model of another's."""
    device = batches[0].src.ids.device
    model.to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=LR, betas=settings.betas, fused=True)

    def step() -> None:
        for batch in batches:
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
                value = loss(batch)
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip or torch.inf)
            optimiser.step()

    return step


def torch_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Gives the mean loss over real tokens of a model that gives logits."""
    say = batch.tgt.say.masked_fill(~batch.tgt.real, -100)
    return F.cross_entropy(model(batch).flatten(0, 1).float(), say.flatten())


def marian_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Gives Marian's own loss."""
    src, tgt = batch.src, batch.tgt
    labels = tgt.say.masked_fill(~tgt.real, -100)
    mask = (src.ids != PAD).long()
    return model(input_ids=src.ids, attention_mask=mask, decoder_input_ids=tgt.read, labels=labels).loss


def peers(sizes: ModelSettings, vocab_size: int, leave_out: set[str]) -> dict[str, tuple[nn.Module, Loss]]:
    """Makes the models of others that are installed."""
    made: dict[str, tuple[nn.Module, Loss]] = {}
    if "marian" not in leave_out:
        try:
            from peers.marian import make_marian
        except ImportError:
            pass
        else:
            marian = make_marian(sizes, vocab_size)
            made["Marian"] = marian, partial(marian_loss, marian)
    if "torch" not in leave_out:
        plain = TorchTransformer(sizes, vocab_size)
        made["nn.Transformer"] = plain, partial(torch_loss, plain)
    if "joey" not in leave_out:
        try:
            from peers.joey import joey_loss, make_joey
        except ImportError:
            pass
        else:
            joey = make_joey(sizes, vocab_size)
            made["Joey NMT"] = joey, partial(joey_loss, joey)
    return made


def bench(console: Console, name: str, dropout: float, threads: int, given: argparse.Namespace) -> dict[str, Any]:
    """Times all systems on one shape, with or without dropout."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    device, dtype = torch.device(given.device), torch.bfloat16 if given.device == "cuda" else torch.float32
    sizes, vocab_size = shape(name, dropout)
    made, lengths = make_batches(read_lengths(given.corpus), given.batch_tokens, given.n_batches, vocab_size)
    batches = [batch.to(device) for batch in made]
    settings = replace(TrainSettings(), precision="float32" if dtype == torch.float32 else "bfloat16")
    product, product_flops = large_product(given.device, dtype)
    calls: dict[str, Step] = {"product": product, "regard": regard_step(sizes, vocab_size, batches, settings)}
    for peer, (model, loss) in peers(sizes, vocab_size, set(given.leave_out)).items():
        calls[peer] = peer_step(model, loss, batches, settings)
    times = interleave(calls, given.device, given.seconds, given.rounds)
    rate = product_flops / times.pop("product").median
    flops, n_tokens = step_flops(sizes, vocab_size, lengths), sum(batch.tgt.n_tokens for batch in batches)
    about = {"shape": name, "dropout": dropout, "threads": threads, "device": given.device}
    title = f"{name}, dropout {dropout}, {threads} thread{'s' * (threads > 1)}, {len(batches)} batches"
    console.print(_table(f"{title}, {n_tokens:,} target tokens", times, n_tokens, flops, rate))
    rows = [_row(key, timing, times, n_tokens, flops / rate) for key, timing in times.items()]
    return {**about, "tokens": n_tokens, "flops": flops, "flops_per_s": rate, "rows": rows}


def _row(name: str, timing: Timing, times: dict[str, Timing], n_tokens: int, limit: float) -> dict[str, Any]:
    peer = times[AGAINST].median / timing.median if AGAINST in times else None
    measured = {
        "s": timing.median,
        "low_s": timing.low,
        "high_s": timing.high,
        "tokens_per_s": n_tokens / timing.median,
    }
    return {"system": name, **measured, "against_marian": peer, "of_limit": limit / timing.median}


def _table(title: str, times: dict[str, Timing], n_tokens: int, flops: float, rate: float) -> Table:
    limit = flops / rate
    ceiling = f"limit {n_tokens / limit:,.0f} tokens/s at {rate / 1e9:,.0f} GFLOP/s"
    table = Table(title=f"{title}; {ceiling}")
    for column in ("system", "target tokens/s (middle half)", "× Marian", "share of the limit"):
        table.add_column(column, justify="right")
    for name, timing in times.items():
        spread = " … ".join(f"{n_tokens / seconds:,.0f}" for seconds in (timing.high, timing.low))
        against = f"{times[AGAINST].median / timing.median:.2f}" if AGAINST in times else ""
        table.add_row(name, f"{n_tokens / timing.median:,.0f} ({spread})", against, f"{limit / timing.median:.0%}")
    return table


def missing(systems: set[str]) -> list[str]:
    """Says which peers took no part, and how they can."""
    ways = {
        "Marian": "pip install '.[bench]'",
        "Joey NMT": "its pins exclude today's tensorboard: see benchmarks/peers/joey.py",
    }
    return [f"{peer} left out: {way}" for peer, way in ways.items() if peer not in systems]


def main() -> None:
    """Runs every table and keeps the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=None, help="folder with train.en.gz and train.de.gz")
    parser.add_argument("--shape", choices=["tiny", "small", "base"], default="small")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--dropouts", nargs="+", type=float, default=[0.1, 0.0])
    parser.add_argument("--batch-tokens", type=int, default=TrainSettings().batch_tokens, help="slots in a batch")
    parser.add_argument("--n-batches", type=int, default=2, help="steps in one timed call")
    parser.add_argument("--leave-out", nargs="*", choices=["marian", "torch", "joey"], default=[])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each table, at least")
    parser.add_argument("--rounds", type=int, default=5, help="for each table, at least")
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    console = Console(width=120)
    cells = [(dropout, threads) for threads in given.threads for dropout in given.dropouts]
    tables = [bench(console, given.shape, *cell, given) for cell in cells]
    notes = missing({row["system"] for table in tables for row in table["rows"]})
    for note in notes:
        console.print(note, markup=False)
    sign = signature(given.device, seed=0, batch_tokens=given.batch_tokens)
    sign["lengths"] = "built in" if given.corpus is None else given.corpus.name
    del sign["threads"]  # each table has its own
    keep(f"train-{given.shape}-{given.device}", {"signature": sign, "notes": notes, "tables": tables}, given.results)


if __name__ == "__main__":
    main()
