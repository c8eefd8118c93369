"""How fast does a model of one shape train in our training step and in others?

Ceiling: the machine's rate for a large matrix product, measured in the same rounds. Forward and backward take six
operations for each weight and token: source tokens pass through the encoder and the decoder's key and value
projections, target tokens through the decoder and the output layer; attention's own products are added, and R-Drop does
everything twice. Padding, dropout, norms, the loss, clipping and the optimiser count as nothing, and padding tokens are
not counted.

One step is forward, backward, clipping and a fused AdamW, over the same batches for all systems, with the lengths of
real sentences. Regard smooths the labels, as it does in practice, the others do not. Dropout is in the same places
(embeddings, residuals, inside the feed-forward network), except in Joey NMT, which also drops attention weights, and in
Marian compiled, which does not drop embeddings. Batches are made beforehand; ours are copied to the device within the
step.

On a GPU batches have the trainer's fixed shapes, products are in bfloat16, and the other systems also run compiled.
Compiling takes long for each shape, so all rows use batches of the most common shapes only; ours over a whole epoch,
with all of its shapes, has a row of its own. The time to the first step includes whatever is compiled for it, which a
later table does not need to compile again.
"""

import argparse
import gc
import logging
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import interleave, keep, large_product
from numpy.typing import NDArray
from peers.groups import commonest, make_groups, pinned, spread
from peers.learning import PEERS, Take
from peers.systems import OURS, TWICE, Start, Work, makers, our_make, start, start_all
from peers.work import read_lengths, shape
from rich.console import Console
from rich.table import Table

from regard.config import TrainSettings
from regard.study.repeats import signature
from regard.study.timing import Timing
from regard.train.batching import StepBatches

CELLS = {"cpu": ["small:4096", "base:1024"], "cuda": ["small:8192", "small:16384", "base:32768"]}
DROPOUTS = {"cpu": [0.1, 0.0], "cuda": [0.1]}
THREADS = {"cpu": [1, 2], "cuda": [1]}
SECONDS = {"cpu": 60.0, "cuda": 8.0}
N_BATCHES = {"cpu": 2, "cuda": 8}
LIMIT = {"cpu": 3600.0, "cuda": 200.0}
LAST = 15.0  # seconds that a table takes after its last system has started, about


@dataclass(frozen=True)
class Cell:
    """What one table is about."""

    shape: str
    batch_tokens: int
    dropout: float
    threads: int


def make_work(cell: Cell, lengths: NDArray[np.int64], given: argparse.Namespace) -> tuple[Work, list[StepBatches]]:
    """Makes the batches to be timed, and the whole epoch that they are from."""
    sizes, vocab_size = shape(cell.shape, cell.dropout)
    like_cuda = given.manner == "cuda"
    epoch = make_groups(lengths, cell.batch_tokens, vocab_size, fixed=like_cuda)
    epoch = pinned(epoch) if given.device == "cuda" else epoch
    groups = commonest(epoch, given.n_shapes, given.n_batches) if like_cuda else spread(epoch, given.n_batches)
    settings = replace(TrainSettings(), precision="bfloat16" if like_cuda else "float32")
    return Work(sizes, vocab_size, settings, torch.device(given.device), groups), epoch


def bench(cell: Cell, lengths: NDArray[np.int64], deadline: float, given: argparse.Namespace) -> dict[str, Any]:
    """Times all systems on one shape and size of batch."""
    torch.set_num_threads(cell.threads)
    work, epoch = make_work(cell, lengths, given)
    product, product_flops = large_product(given.device, torch.bfloat16 if given.device == "cuda" else torch.float32)
    product()  # the libraries' own start is nobody's
    takes, starts, notes = start_all(makers(work, given.manner, set(given.leave_out)), work, deadline)
    calls = {name: partial(_take_all, take, len(work.groups)) for name, take in takes.items()}
    times = interleave({"product": product, **calls}, given.device, given.seconds, given.rounds)
    rate = product_flops / times.pop("product").median
    rows = [row(name, timing, starts[name], work, rate) for name, timing in times.items()]
    with_epoch = given.manner == "cuda" and OURS in starts
    whole = epoch_row(replace(work, groups=epoch), rate, given) if with_epoch else None
    shapes = [asdict(it) for it in dict.fromkeys(group.parts[0].shape for group in work.groups)]
    about = {**asdict(cell), "precision": work.settings.precision, "batches": len(work.groups), "shapes": shapes}
    counts = {"tokens": work.n_tokens, "slots": work.n_slots, "flops": work.flops, "flops_per_s": rate}
    return {**about, **counts, "rows": rows, "epoch": whole, "notes": notes}


def epoch_row(work: Work, rate: float, given: argparse.Namespace) -> dict[str, Any]:
    """Times ours alone over all batches of an epoch."""
    n = len(work.groups)
    take, begun = start(our_make(work), n, work.device)
    timing = interleave({OURS: partial(_take_all, take, n)}, given.device, given.seconds / 4, given.rounds)[OURS]
    shapes = {group.parts[0].shape for group in work.groups}
    return {"batches": n, "n_shapes": len(shapes), **row(OURS, timing, begun, work, rate)}


def row(name: str, timing: Timing, begun: Start, work: Work, rate: float) -> dict[str, Any]:
    """Gives all that was measured of one system."""
    flops = work.flops * (2 if name == TWICE else 1)
    of_limit = {"flops_per_s": flops / timing.median, "of_limit": flops / timing.median / rate}
    return {"system": name, **_speeds(timing, work), **of_limit, **asdict(begun)}


def table(record: dict[str, Any]) -> Table:
    """Draws one cell."""
    rate, whole = record["flops_per_s"], record["epoch"]
    title = f"{record['shape']}, batches of {record['batch_tokens']:,} slots, dropout {record['dropout']}, "
    title += f"{record['precision']}, {record['threads']} thread{'s' * (record['threads'] > 1)}; "
    title += f"{record['batches']} batches with {record['tokens']:,} real target tokens; "
    title += f"limit {record['tokens'] * rate / record['flops']:,.0f} tokens/s at {rate / 1e12:,.3g} TFLOP/s"
    if whole is not None:
        title += f"; regard over an epoch of {whole['n_shapes']} shapes: {whole['tokens_per_s']:,.0f} tokens/s"
    drawn = Table(title=title)
    heads = "system", "real target tokens/s (middle half)", "ms/step", "slots/s", "TFLOP/s", "of limit"
    for head in (*heads, "regard × faster", "peak GiB", "first step", "ready"):
        drawn.add_column(head, justify="right")
    ours = next((it["s"] for it in record["rows"] if it["system"] == OURS), None)
    for it in record["rows"]:
        spread = f"{it['tokens_per_s']:,.0f} ({it['low_tokens_per_s']:,.0f} … {it['high_tokens_per_s']:,.0f})"
        peak = "" if it["peak_bytes"] is None else f"{it['peak_bytes'] / 2**30:.1f}"
        against = "" if ours is None else f"{it['s'] / ours:.2f}"
        speeds = f"{it['ms_per_step']:,.2f}", f"{it['slots_per_s']:,.0f}", f"{it['flops_per_s'] / 1e12:.3g}"
        waits = f"{it['first_s']:.1f} s", f"{it['ready_s']:.1f} s"
        drawn.add_row(it["system"], spread, *speeds, f"{it['of_limit']:.0%}", against, peak, *waits)
    return drawn


def _speeds(timing: Timing, work: Work) -> dict[str, float]:
    tokens = work.n_tokens
    return {
        "s": timing.median,
        "tokens_per_s": tokens / timing.median,
        "low_tokens_per_s": tokens / timing.high,
        "high_tokens_per_s": tokens / timing.low,
        "ms_per_step": timing.median * 1e3 / len(work.groups),
        "slots_per_s": work.n_slots / timing.median,
    }


def _take_all(take: Take, n: int) -> None:
    for i in range(n):
        take(i)


def _let_go(manner: str) -> None:
    """Forgets the systems of one table before the next."""
    gc.collect()
    if manner == "cuda":
        torch.compiler.reset()
        torch.cuda.empty_cache()


def _versions() -> dict[str, str]:
    found = {}
    for name in ("transformers", "joeynmt", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def options() -> argparse.Namespace:
    """Reads the command line; what is not said is as usual for the manner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=None, help="folder with train.en.gz and train.de.gz")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--manner", choices=["cpu", "cuda"], default=None, help="of another device, to try it here")
    parser.add_argument("--cells", nargs="+", default=None, help="preset and slots in a batch, such as small:8192")
    parser.add_argument("--threads", nargs="+", type=int, default=None)
    parser.add_argument("--dropouts", nargs="+", type=float, default=None)
    parser.add_argument("--n-batches", type=int, default=None, help="steps in one timed call")
    parser.add_argument("--n-shapes", type=int, default=1, help="in the manner of a GPU, of the timed batches")
    parser.add_argument("--leave-out", nargs="*", choices=list(PEERS), default=[])
    parser.add_argument("--seconds", type=float, default=None, help="for each table, at least")
    parser.add_argument("--rounds", type=int, default=5, help="for each table, at least")
    parser.add_argument("--limit", type=float, default=None, help="seconds after which nothing more is compiled")
    parser.add_argument("--quick", action="store_true", help="tries everything once, for no figures")
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    given.manner = given.manner or given.device
    if given.quick:
        given.cells, given.threads = given.cells or ["tiny:512"], given.threads or [1]
        given.seconds, given.rounds, given.n_batches = 0.5, 2, 2
    tables = {"cells": CELLS, "threads": THREADS, "dropouts": DROPOUTS}
    for key, usual in {**tables, "n_batches": N_BATCHES, "seconds": SECONDS, "limit": LIMIT}.items():
        if getattr(given, key) is None:
            setattr(given, key, usual[given.manner])
    return given


def main() -> None:
    """Runs every table and keeps the result."""
    began = time.perf_counter()
    given = options()
    logging.disable(logging.WARNING)
    console = Console(width=160)
    lengths = read_lengths(given.corpus)
    wanted = [(name, int(n)) for name, _, n in (cell.partition(":") for cell in given.cells)]
    cells = [Cell(*it, dropout, n) for it in wanted for n in given.threads for dropout in given.dropouts]
    sign = {**signature(given.device, seed=0, manner=given.manner), **_versions()}
    sign["lengths"] = "built in" if given.corpus is None else given.corpus.name
    del sign["threads"]  # each table has its own
    tried = given.quick or given.manner != given.device  # and no figure to keep
    folder = given.results or (Path(tempfile.gettempdir()) if tried else None)
    tables = []
    for i, cell in enumerate(cells):
        deadline = began + given.limit - LAST * (len(cells) - i)
        tables.append(bench(cell, lengths, deadline, given))
        console.print(table(tables[-1]))
        for note in tables[-1]["notes"]:
            console.print(note, markup=False)
        keep(f"train-{given.device}", {"signature": sign, "tables": tables}, folder)
        _let_go(given.manner)


if __name__ == "__main__":
    main()
