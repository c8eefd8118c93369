"""How fast does a GPU decode: Regard, with each step as one captured graph, compared with Hugging Face's Marian?

Ceiling for one sentence: each token reads every weight of the decoder and of the output layer once from memory. Ceiling
for many: operations at the rate of a large product, and the cache is read once. Both rates are measured in the same
rounds. All systems write the same number of tokens, with EOS suppressed; Marian has our weights.

With `--model` and `--text` a file of real sentences is translated too: in slots that are refilled as they become free,
and batch by batch with the plain model, in float32 and bfloat16; if the file has references, BLEU is reported as well.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import sacrebleu
import torch
from measure import copy_rate, interleave, keep, large_product
from peers.work import (
    FIRST_PIECE,
    Task,
    cross_weights,
    decoder_weights,
    encoder_weights,
    reading_flops,
    shape,
    writing_flops,
)
from rich.console import Console
from rich.table import Table

from regard.build import build_model
from regard.config import DecodeSettings, ModelSettings
from regard.data.files import read_lines
from regard.engine import select_engine
from regard.engine import slot_decoder as slots
from regard.engine.cuda import CudaEngine
from regard.engine.plain import PlainEngine
from regard.engine.slots import CAPTURE_AFTER
from regard.model import Transformer
from regard.padding import EOS
from regard.pipeline import load_translator
from regard.study.repeats import signature
from regard.study.timing import Timing

CELLS = ((1, 1), (1, 5), (64, 5), (512, 1), (512, 5))  # sentences and hypotheses of each
N_TOKENS = 25
Call = Callable[[], list[list[int]]]


def our_call(model: Transformer, task: Task, beam: int, few: int = slots.FEW) -> Call:
    """Makes the call that decodes with ours, which never says EOS here; up to `few` rows by our own products."""
    engine = select_engine(model)
    assert isinstance(engine, CudaEngine), "a base Transformer is one of those that are packed"
    engine.slot_decoder.min_token = EOS + 1
    B = len(task.sources)
    settings = DecodeSettings(beam=beam, max_ratio=0.0, max_extra=task.n_tokens, batch_tokens=B * 32)

    def call() -> list[list[int]]:
        found = dict(engine.search(task.sources, settings))
        return [found[i][0].ids for i in range(B)]

    before, slots.FEW = slots.FEW, few
    for _ in range(CAPTURE_AFTER + 2):
        call()  # captures the step as it is to be, and in the end the reading
    slots.FEW = before
    return call


def marian_call(model: Transformer, sizes: ModelSettings, vocab_size: int, task: Task, beam: int) -> Call:
    """Makes the call that decodes with Marian, with our weights in it."""
    from peers.marian import copy_weights, decode_marian, make_marian

    marian = make_marian(sizes, vocab_size)
    copy_weights(model, marian)
    decode = decode_marian(marian.to("cuda", torch.bfloat16), beam)  # pyright: ignore
    return lambda: decode([task])[0].tolist()


def limit_seconds(sizes: ModelSettings, vocab_size: int, task: Task, beam: int, rates: tuple[float, float]) -> float:
    """Gives the least time for this batch in bfloat16, at so many bytes and operations in a second."""
    bandwidth, rate = rates
    n, D, L = task.n_tokens, sizes.d_model, sizes.n_decoder_layers
    lengths = [len(source) + 1 for source in task.sources]
    remembered = 4 * L * D * sum(lengths) * n + 4 * L * D * beam * len(lengths) * n * (n + 1) // 2
    read = 2 * (encoder_weights(sizes) + cross_weights(sizes))
    written = 2 * decoder_weights(sizes, vocab_size) * n + remembered
    flops = writing_flops(sizes, vocab_size, [(length, n) for length in lengths for _ in range(beam)])
    return max(read / bandwidth, reading_flops(sizes, lengths) / rate) + max(written / bandwidth, flops / rate)


def cell(console: Console, name: str, batch: int, beam: int, given: argparse.Namespace) -> dict[str, Any]:
    """Times all systems on one batch size and one beam."""
    sizes, vocab_size = shape(name, dropout=0.0)
    torch.manual_seed(0)
    model = build_model(sizes, (vocab_size, vocab_size)).cuda()
    assert isinstance(model, Transformer), "the peer is a Transformer"
    rng = np.random.default_rng(0)
    task = Task([rng.integers(FIRST_PIECE, vocab_size, size=N_TOKENS - 1).tolist() for _ in range(batch)], N_TOKENS)
    calls: dict[str, Any] = {}
    if not given.leave_out:
        calls["Marian bfloat16"] = marian_call(model, sizes, vocab_size, task, beam)
    plain = our_call(model, task, beam)
    wanted = plain()
    calls["regard float32"] = plain
    half = build_model(sizes, (vocab_size, vocab_size))
    half.load_state_dict(model.state_dict())
    assert isinstance(half, Transformer), "it is as the first"
    calls["regard bfloat16"] = our_call(half.to("cuda", torch.bfloat16), task, beam)
    if batch * beam <= slots.FEW:
        calls["regard bfloat16, library's products"] = our_call(half, task, beam, few=0)
    agree = {key: share_of_same(wanted, call()) for key, call in calls.items()}
    product, flops = large_product("cuda", torch.bfloat16)
    times = interleave({"product": product, **calls}, "cuda", given.seconds, least=5, most=given.seconds / 3)
    rates = copy_rate(), flops / times.pop("product").median
    limit = limit_seconds(sizes, vocab_size, task, beam, rates)
    console.print(_table(f"{name}, batch {batch}, beam {beam}", times, task, limit, agree))
    rows = [
        {"system": key, "s": t.median, "low_s": t.low, "high_s": t.high, "agree": agree[key]}
        for key, t in times.items()
    ]
    return {
        "shape": name, "batch": batch, "beam": beam, "tokens": task.total,
        "limit_s": limit, "bytes_per_s": rates[0], "flops_per_s": rates[1], "rows": rows,
    }  # fmt: skip


def share_of_same(wanted: list[list[int]], written: list[list[int]]) -> float:
    """Gives the share of tokens that agree; raises where their number does not."""
    pairs = [pair for a, b in zip(wanted, written, strict=True) for pair in zip(a, b, strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs)


def _table(title: str, times: dict[str, Timing], task: Task, limit: float, agree: dict[str, float]) -> Table:
    table = Table(title=f"{title}, {task.n_tokens} tokens each; limit {limit * 1e3:.2f} ms")
    for column in ("system", "ms (middle half)", "tokens/s", "share of the limit", "tokens as float32"):
        table.add_column(column, justify="right")
    for name, t in times.items():
        spread = f"{t.median * 1e3:,.2f} ({t.low * 1e3:,.2f} … {t.high * 1e3:,.2f})"
        speed, share = f"{task.total / t.median:,.0f}", f"{limit / t.median:.0%}"
        table.add_row(name, spread, speed, share, f"{agree[name]:.0%}")
    return table


def file_rows(console: Console, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Translates a file in all ways, three times each: at first steps are captured and kernels compiled."""
    pairs = [line.split("\t") for line in islice(read_lines(str(given.text)), given.lines)]
    sources = [pair[0] for pair in pairs]
    settings = DecodeSettings(beam=given.beam, batch_tokens=given.batch_tokens)
    table, rows, wanted = Table(title=f"{given.model}, {len(sources):,} lines, beam {given.beam}"), [], None
    for column in ("way", "first s", "again s", "then s", "lines/s", "as the first way", "BLEU"):
        table.add_column(column, justify="right")
    for precision in ("float32", "bfloat16"):
        for way in ("batches", "slots"):
            translator = load_translator(given.model, precision, "cuda")
            if way == "batches":
                translator.engine = PlainEngine(translator.model)
            taken = [_seconds(partial(translator.translate, sources, settings)) for _ in range(3)]
            said = [each.text for each in translator.translate(sources, settings)]
            wanted = wanted or said
            same = sum(a == b for a, b in zip(said, wanted, strict=True)) / len(said)
            bleu = sacrebleu.corpus_bleu(said, [[pair[1] for pair in pairs]]).score if len(pairs[0]) > 1 else None
            table.add_row(
                f"{precision}, {way}", *(f"{s:.2f}" for s in taken), f"{len(said) / taken[-1]:,.0f}", f"{same:.1%}",
                "" if bleu is None else f"{bleu:.2f}",
            )  # fmt: skip
            rows.append({"precision": precision, "way": way, "s": taken, "same": same, "bleu": bleu})
    console.print(table)
    return rows


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> None:
    """Runs every table, keeping what there is after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["tiny", "small", "base"], default="base")
    parser.add_argument("--leave-out", action="store_true", help="without Marian")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each table")
    parser.add_argument("--model", default="zh-en", help="for --text")
    parser.add_argument("--text", type=Path, default=None, help="lines to translate, with references after a tab")
    parser.add_argument("--lines", type=int, default=4000)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch-tokens", type=int, default=16384)
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    console = Console(width=120)
    record: dict[str, Any] = {"signature": signature("cuda", dtype="torch.bfloat16", seed=0), "tables": []}
    for batch, beam in CELLS:
        record["tables"].append(cell(console, given.shape, batch, beam, given))
        keep("decode-cuda", record, given.results)
    if given.text is not None:
        record["file"] = file_rows(console, given)
        keep("decode-cuda", record, given.results)


if __name__ == "__main__":
    main()
