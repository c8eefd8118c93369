"""How fast does a model of one shape translate in our decoder and in others?

Ceiling: a step reads every weight of the decoder and of the output layer once and multiplies it with each row. So a
batch takes at least bytes / bandwidth or operations / rate, whichever is more, once for the encoder and once for each
step. Both are for float32 and measured in the same rounds, by reading as many bytes as the step's weights and by a
large product; int8 may exceed it.

Every system has the same shape and the same batches and writes the same number of tokens: EOS is suppressed until the
forced length is reached. Regard, Marian and CTranslate2 have the same weights and compute the same function, so most of
their tokens must agree. Systems that are not installed are left out.
"""

import argparse
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import interleave, keep, large_product, large_read
from peers.ours import engine, our_systems, with_threads
from peers.work import (
    Task,
    cross_weights,
    decoder_weights,
    encoder_weights,
    make_tasks,
    read_lengths,
    reading_flops,
    shape,
    writing_flops,
)
from rich.console import Console
from rich.table import Table

from regard.build import build_model
from regard.config import ModelSettings
from regard.model import Transformer
from regard.padding import EOS
from regard.study.repeats import signature
from regard.study.timing import Timing

Decode = Callable[[list[Task]], list[Any]]  # for each batch the ids that were written, a row for each sentence
AGAINST = "CTranslate2 float32"  # in whichever way it shares out its threads best
OTHER_WEIGHTS = {"Joey NMT float32"}
LEAST_AGREEMENT = 0.5
N_TASKS = {1: 9, 64: 2}  # batches in one timed call


def marian_systems(
    model: Transformer, sizes: ModelSettings, vocab_size: int, beam: int, threads: int
) -> dict[str, Decode]:
    """Makes Hugging Face's Marian with our weights, or nothing where it is not installed."""
    try:
        from peers.marian import copy_weights, decode_marian, make_marian
    except ImportError:
        return {}
    marian = make_marian(sizes, vocab_size)
    copy_weights(model, marian)
    return {"Marian float32": with_threads(decode_marian(marian, beam), threads)}


def ctranslate_systems(
    model: Transformer, sizes: ModelSettings, vocab_size: int, beam: int, threads: int
) -> dict[str, Decode]:
    """Makes CTranslate2 with our weights, in both precisions, its threads within a batch or beside each other."""
    try:
        from peers.ctranslate import decode_ctranslate, make_translator
        from peers.marian import copy_weights, make_marian
    except ImportError:
        return {}
    marian = make_marian(sizes, vocab_size)
    copy_weights(model, marian)
    systems = {}
    for precision in ("float32", "int8"):
        translator = make_translator(marian, precision, threads, 1)
        systems[f"CTranslate2 {precision}"] = decode_ctranslate(translator, beam, vocab_size)
        if threads > 1:
            translator = make_translator(marian, precision, 1, threads)
            name = f"CTranslate2 {precision}, {threads} workers"
            systems[name] = decode_ctranslate(translator, beam, vocab_size)
    return systems


def joey_systems(sizes: ModelSettings, vocab_size: int, beam: int) -> dict[str, Decode]:
    """Makes Joey NMT, or nothing where it is not installed."""
    try:
        from peers.joey import decode_joey, make_joey
    except ImportError:
        return {}
    return {"Joey NMT float32": decode_joey(make_joey(sizes, vocab_size), beam)}


def make_systems(
    sizes: ModelSettings, vocab_size: int, beam: int, threads: int, leave_out: set[str]
) -> dict[str, Decode]:
    """Makes all systems of one shape, ours first."""
    torch.manual_seed(0)
    model = build_model(sizes, (vocab_size, vocab_size))
    assert isinstance(model, Transformer), "the peers are Transformers"
    with torch.no_grad():
        model.tgt.table.weight[:EOS] = 0.0  # ours never says PAD, UNK and BOS: nobody is tempted to
    makers = {
        "regard": partial(our_systems, model, beam, threads),
        "ctranslate2": partial(ctranslate_systems, model, sizes, vocab_size, beam, threads),
        "marian": partial(marian_systems, model, sizes, vocab_size, beam, threads),
        "joey": partial(joey_systems, sizes, vocab_size, beam),
    }
    return {name: decode for key, make in makers.items() if key not in leave_out for name, decode in make().items()}


def check_outputs(systems: dict[str, Decode], tasks: list[Task]) -> dict[str, float]:
    """Raises where a system wrote another number of tokens, and gives the share of tokens that agree with ours."""
    agree, ours = {}, None
    for name, decode in systems.items():
        written = [[[int(i) for i in row] for row in batch] for batch in decode(tasks)]
        for task, batch in zip(tasks, written, strict=True):
            lengths = {len(row) for row in batch}
            assert len(batch) == len(task.sources) and lengths == {task.n_tokens}, f"{name} wrote {lengths} tokens"
            assert not any(EOS in row for row in batch), f"{name} wrote EOS"
        flat = [i for batch in written for row in batch for i in row]
        ours = ours or flat
        agree[name] = sum(a == b for a, b in zip(ours, flat, strict=True)) / len(flat)
        # Rounding turns some near ties; a system that hardly ever agrees has other weights than ours.
        assert name in OTHER_WEIGHTS or agree[name] > LEAST_AGREEMENT, f"{name}: {agree[name]:.0%} of tokens as ours"
    return agree


def limit_seconds(
    sizes: ModelSettings, vocab_size: int, tasks: list[Task], beam: int, rates: tuple[float, float]
) -> float:
    """Gives the least time for these batches at so many bytes and operations in a second."""
    bandwidth, rate = rates
    total = 0.0
    for task in tasks:
        lengths, n = [len(source) + 1 for source in task.sources], task.n_tokens
        read_bytes = 4 * (encoder_weights(sizes) + cross_weights(sizes))
        write_bytes = 4 * decoder_weights(sizes, vocab_size) * n
        written = [(length, n) for length in lengths for _ in range(beam)]
        total += max(read_bytes / bandwidth, reading_flops(sizes, lengths) / rate)
        total += max(write_bytes / bandwidth, writing_flops(sizes, vocab_size, written) / rate)
    return total


def bench(
    console: Console, name: str, batch: int, beam: int, threads: int, given: argparse.Namespace
) -> dict[str, Any]:
    """Times all systems on one shape, one batch size, one beam and so many threads."""
    torch.set_num_threads(threads)
    sizes, vocab_size = shape(name, dropout=0.0)
    tasks = make_tasks(read_lengths(given.corpus), batch, N_TASKS[batch], vocab_size)
    systems = make_systems(sizes, vocab_size, beam, threads, set(given.leave_out))
    agree = check_outputs(systems, tasks)
    product, product_flops = large_product("cpu", torch.float32)
    n_bytes = 4 * decoder_weights(sizes, vocab_size)
    calls = {"product": product, "read": large_read(n_bytes), **{key: partial(systems[key], tasks) for key in systems}}
    times = interleave(calls, "cpu", given.seconds, given.rounds, given.most)
    rates = n_bytes / times.pop("read").median, product_flops / times.pop("product").median
    limit = limit_seconds(sizes, vocab_size, tasks, beam, rates)
    title = f"{name}, batch {batch}, beam {beam}, {threads} thread{'s' * (threads > 1)}"
    console.print(_table(title, times, tasks, limit, rates, agree))
    rows = [_row(key, timing, times, limit, agree[key]) for key, timing in times.items()]
    n_sentences, n_tokens = sum(len(task.sources) for task in tasks), sum(task.total for task in tasks)
    about = {"shape": name, "batch": batch, "beam": beam, "threads": threads}
    measured = {"bytes_per_s": rates[0], "flops_per_s": rates[1], "limit_s": limit}
    return {**about, "sentences": n_sentences, "tokens": n_tokens, **measured, "rows": rows}


def _row(name: str, timing: Timing, times: dict[str, Timing], limit: float, agree: float) -> dict[str, Any]:
    peer = _against(times)
    measured = {"s": timing.median, "low_s": timing.low, "high_s": timing.high}
    return {
        "system": name,
        **measured,
        "against_ct2": peer and peer / timing.median,
        "of_limit": limit / timing.median,
        "agree": agree,
    }


def _against(times: dict[str, Timing]) -> float | None:
    """Gives the time of the system that all are set against, or None where it took no part."""
    return min((timing.median for name, timing in times.items() if name.startswith(AGAINST)), default=None)


def _table(
    title: str,
    times: dict[str, Timing],
    tasks: list[Task],
    limit: float,
    rates: tuple[float, float],
    agree: dict[str, float],
) -> Table:
    n_sentences, n_tokens = sum(len(task.sources) for task in tasks), sum(task.total for task in tasks)
    single, peer = n_sentences == len(tasks), _against(times)
    unit = "ms/sentence" if single else "tokens/s"

    def speed(seconds: float) -> str:
        return f"{seconds / n_sentences * 1e3:,.1f}" if single else f"{n_tokens / seconds:,.0f}"

    ceiling = f"limit {speed(limit)} {unit} at {rates[0] / 1e9:.1f} GB/s and {rates[1] / 1e9:.0f} GFLOP/s"
    table = Table(title=f"{title}, {n_sentences} sentences, {n_tokens} tokens; {ceiling}")
    for column in ("system", f"{unit} (middle half)", "× CTranslate2 float32", "share of the limit", "tokens as ours"):
        table.add_column(column, justify="right")
    for name, timing in times.items():
        against = "" if peer is None else f"{peer / timing.median:.2f}"
        ends = (timing.low, timing.high) if single else (timing.high, timing.low)
        spread = f"{speed(timing.median)} ({' … '.join(speed(seconds) for seconds in ends)})"
        same = "" if name in OTHER_WEIGHTS else f"{agree[name]:.0%}"
        table.add_row(name, spread, against, f"{limit / timing.median:.0%}", same)
    return table


def missing(systems: set[str]) -> list[str]:
    """Says which peers took no part, and how they can."""
    ways = {
        "CTranslate2": "pip install '.[bench]'",
        "Marian": "pip install '.[bench]'",
        "Joey NMT": "its pins exclude today's tensorboard: see benchmarks/peers/joey.py",
    }
    return [f"{peer} left out: {way}" for peer, way in ways.items() if not any(s.startswith(peer) for s in systems)]


def main() -> None:
    """Runs every table, keeping what there is after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=None, help="folder with train.en.gz and train.de.gz")
    parser.add_argument("--shapes", nargs="+", choices=["tiny", "small", "base"], default=["small", "base"])
    parser.add_argument("--batches", nargs="+", type=int, choices=list(N_TASKS), default=list(N_TASKS))
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--leave-out", nargs="*", choices=["ctranslate2", "marian", "joey"], default=[])
    parser.add_argument("--seconds", type=float, default=30.0, help="for each table, at least")
    parser.add_argument("--rounds", type=int, default=5, help="for each table, at least")
    parser.add_argument("--most", type=float, default=10.0, help="seconds after which a slow system has had its rounds")
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    console = Console(width=120)
    cells = [
        (name, batch, beam, threads)
        for name in given.shapes
        for threads in given.threads
        for batch in given.batches
        for beam in given.beams
    ]
    sign = signature("cpu", seed=0, lengths="built in" if given.corpus is None else given.corpus.name, engine=engine())
    del sign["threads"]  # each table has its own
    record: dict[str, Any] = {"signature": sign, "notes": [], "tables": []}
    for cell in cells:
        record["tables"].append(bench(console, *cell, given))
        record["notes"] = missing({row["system"] for table in record["tables"] for row in table["rows"]})
        keep("decode-cpu", record, given.results)
    for note in record["notes"]:
        console.print(note, markup=False)


if __name__ == "__main__":
    main()
