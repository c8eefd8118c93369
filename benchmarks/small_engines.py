"""How fast does the bundled model translate in our engine, in Marian and in Firefox's, on one core?

Ceiling: each step reads the weights of the decoder and of the output layer once, a byte each in int8, and multiplies
them with each row. So a batch takes at least bytes / bandwidth or operations / rate, whichever is more, once for the
encoder and once for each step. Both are measured in the same rounds: by reading as many bytes, and by a large product
in float32, of which one in int8 takes a quarter, as its instruction multiplies four times as many numbers.

Marian (pip install pymarian) and ours have the same weights and compute the same function: most of their tokens must
agree. Its int8 is intgemm8 for every matrix; with a shortlist it can keep the output layer in float32 alone. Firefox's
engine (pip install fxtranslate) runs nothing but post-norm encoders with SSRU decoders: it gets one at random of our
width, depth and vocabulary, takes one sentence at a time, and has no beam. EOS is suppressed, so that all write the
same number of tokens: Firefox's, `2 (n + 1) + 4` for n source pieces, and, with `--natural`, the reference's for the
two others. A batch has sentences of one length: in mixed ones Marian gets shorter ones wrong. Shortlists hold the
same words: the first ids, those that go with each source piece in the data, and the source pieces.

Each system is a process of its own and they take turns; CPU seconds are those of the process, and move less than
the clock where other work shares the machine. `--python` names an interpreter that has the peers.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from measure import keep, large_product, large_read, quartiles
from peers.firefox import firefox_decoder_weights, write_firefox_model, written_tokens
from peers.marian_format import (
    int8_items,
    marian_arrays,
    marian_settings,
    turn_outputs,
    write_bin,
    write_npz,
    write_shortlist,
    write_vocabulary,
)
from peers.ours import engine
from peers.work import cross_weights, decoder_weights, encoder_weights, reading_flops, writing_flops
from rich.console import Console
from rich.table import Table

from regard.checkpoint.weights import Checkpoint, load_model
from regard.config import ModelSettings
from regard.data.formats import Pair, read_pairs
from regard.engine.native_weights import make_codes
from regard.padding import EOS
from regard.pipeline.shortlist_learning import learn_shortlist
from regard.study.repeats import signature
from regard.zoo import named

MODEL = "zh-en"
WORKER = Path(__file__).parent / "peers/worker.py"
MAX_LEN = 512  # positions that Marian gets
FIRST, EACH = 300, 50  # words of a shortlist in any case, and for each source piece; the first 261 ids are bytes
TOKEN = 270  # the one that Firefox's engine always writes
N_BATCHES = {1: 9, 32: 3}  # in one timed call
AGAINST = "regard int8"
LEAST_AGREEMENT = 0.5
BYTES = {"int8": 1, "float32": 4}

Said = dict[str, list[list[str]]]  # what each system wrote, a line for each sentence of each batch


class Sentence(NamedTuple):
    """A source, and the length of its reference."""

    text: str
    ids: list[int]
    n_target: int


@dataclass(frozen=True)
class Batch:
    """Sentences of one length, and the tokens that each translation must have."""

    sentences: Sequence[Sentence]
    n_tokens: int

    @property
    def n_source(self) -> int:
        """Return the source pieces of each sentence, without EOS."""
        return len(self.sentences[0].ids)


@dataclass(frozen=True)
class Cell:
    """What is measured side by side."""

    batch: int
    beam: int
    shortlist: bool
    natural: bool  # as many tokens as the references have

    def title(self) -> str:
        """Name it."""
        words = "shortlist" if self.shortlist else "all words"
        return f"batch {self.batch}, beam {self.beam}, {words}{', natural lengths' * self.natural}"


class Spent(NamedTuple):
    """Seconds on the clock and of a core."""

    wall_s: float
    cpu_s: float


class Worker:
    """A system in a process of its own."""

    def __init__(self, python: str, system: str, options: dict[str, Any]):
        command = [python, str(WORKER), system, json.dumps(options)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.system = system

    def __call__(self, batches: Sequence[Batch]) -> tuple[Spent, list[list[str]]]:
        """Let it translate batch after batch."""
        assert self._process.stdin is not None and self._process.stdout is not None, "both are pipes"
        self._process.stdin.write(json.dumps([self._request(batch) for batch in batches]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.system} ended with code {self._process.wait()}")
        wall, cpu, said = json.loads(line)
        return Spent(wall, cpu), said

    def _request(self, batch: Batch) -> tuple[list[str], dict[str, Any]]:
        if self.system == "firefox":
            return [sentence.text for sentence in batch.sentences], {}
        lines = [" ".join(f"_{i}" for i in sentence.ids) for sentence in batch.sentences]
        if self.system == "marian":  # it stops as soon as it has this multiple of the source, with EOS
            return lines, {"max-length-factor": (batch.n_tokens - 0.5) / (batch.n_source + 1)}
        return lines, {"max_extra": batch.n_tokens}

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def write_models(checkpoint: Checkpoint, pairs: Sequence[Pair], folder: Path) -> None:
    """Write the model in all forms, vocabularies and shortlists that are learned from sentence pairs."""
    settings, tokenizer = checkpoint.settings.model, checkpoint.tokenizer
    arrays = {name: tensor.numpy() for name, tensor in checkpoint.model.state_dict().items()}
    V = tokenizer.vocab_size("src")
    codes = np.frombuffer(make_codes(settings, None)(0, MAX_LEN), np.float32).reshape(MAX_LEN, -1)[
        :, : settings.d_model
    ]
    theirs, about = marian_arrays(arrays, settings, codes, range(EOS + 1)), marian_settings(settings, V, MAX_LEN)
    write_npz(folder / "float32.npz", theirs, about)
    write_bin(folder / "int8.bin", int8_items(turn_outputs(theirs)), about)
    write_bin(folder / "int8-shortlist.bin", int8_items(theirs), about)
    write_vocabulary(folder / "words.yml", ["<pad>", "<unk>", "<s>", "</s>", *(f"_{i}" for i in range(EOS + 1, V))])
    write_firefox_model(folder / "firefox.bin", settings, V, TOKEN)
    table = learn_shortlist(tokenizer, ((pair.src, pair.tgt) for pair in pairs), 0, EACH).table
    np.save(folder / "table.npy", table)
    write_shortlist(folder / "words.bin", FIRST, table)


def make_workers(cell: Cell, python: str, folder: Path) -> dict[str, Worker]:
    """Start the systems that can do what a cell asks, ours first."""
    table = str(folder / "table.npy") if cell.shortlist else ""
    method = {"method": "greedy", "beam": 1} if cell.beam == 1 else {"method": "beam", "beam": cell.beam}
    common = {"model": MODEL, "table": table, "first": FIRST, "decode": {**method, "max_ratio": 0.0}}
    workers = {
        f"regard {precision}": Worker(sys.executable, "regard", {**common, "precision": precision})
        for precision in BYTES
    }
    words = folder / "words.yml"
    shortlist = f"--shortlist {folder / 'words.bin'} 0" if cell.shortlist else ""
    models = {"int8": "int8-shortlist.bin" if cell.shortlist else "int8.bin", "float32": "float32.npz"}
    for precision, model in models.items():
        arguments = f"-m {folder / model} -v {words} {words} --cpu-threads 1 -b {cell.beam} --normalize 1 "
        arguments += f"--mini-batch {cell.batch} --maxi-batch 1 --allow-unk --quiet {shortlist}"
        workers[f"Marian {precision}"] = Worker(python, "marian", {"arguments": arguments})
    if cell.beam == 1 and not cell.natural:
        options = {"model": str(folder / "firefox.bin"), "vocabulary": str(named(MODEL) / "tokenizer.model")}
        options["shortlist"] = str(folder / "words.bin") if cell.shortlist else ""
        workers["fxtranslate int8"] = Worker(python, "firefox", options)
    return workers


def by_length(pairs: Sequence[Pair], checkpoint: Checkpoint) -> dict[int, list[Sentence]]:
    """Return sentences by their length; those that SentencePiece alone cuts as our tokenizer does."""
    import sentencepiece

    cutter = sentencepiece.SentencePieceProcessor(model_file=str(named(MODEL) / "tokenizer.model"))
    found: dict[int, list[Sentence]] = defaultdict(list)
    tokenizer = checkpoint.tokenizer
    for pair in pairs:
        ids = [int(i) for i in tokenizer.encode(pair.src, "src")]
        if ids == cutter.encode(pair.src):
            found[len(ids)].append(Sentence(pair.src, ids, len(tokenizer.encode(pair.tgt, "tgt"))))
    return found


def make_batches(found: dict[int, list[Sentence]], size: int, natural: bool) -> list[Batch]:
    """Take batches of short to long sentences, as often as they come."""
    full = {n: some for n, some in found.items() if len(some) >= size}
    lengths = sorted(n for n, some in full.items() for _ in some)
    chosen = [lengths[int(place)] for place in np.linspace(0, len(lengths) - 1, 2 * N_BATCHES[size] + 1)[1::2]]
    batches, used = [], dict.fromkeys(full, 0)
    for n in chosen:
        at = min(used[n], len(full[n]) - size)
        some = full[n][at : at + size]
        used[n] += size
        mean = round(statistics.mean(each.n_target for each in some))
        batches.append(Batch(some, mean if natural else written_tokens(n)))
    return batches


def check(
    said: dict[str, list[list[str]]], batches: Sequence[Batch], checkpoint: Checkpoint
) -> dict[str, float | None]:
    """Raise where a system wrote another number of tokens; return how many agree with ours in float32."""
    ours = [word for batch in said["regard float32"] for line in batch for word in line.split()]
    always = checkpoint.tokenizer.decode([TOKEN])
    agree: dict[str, float | None] = {}
    for name, written in said.items():
        for batch, lines in zip(batches, written, strict=True):
            counts = {line.count(always) if name.startswith("fx") else len(line.split()) for line in lines}
            assert counts == {batch.n_tokens}, f"{name} wrote {counts} tokens instead of {batch.n_tokens}"
        words = [word for batch in written for line in batch for word in line.split()]
        agree[name] = None
        if not name.startswith("fx"):
            share = sum(a == b for a, b in zip(ours, words, strict=True)) / len(ours)
            assert share > LEAST_AGREEMENT, f"{name}: {share:.0%} of tokens as ours"
            agree[name] = share
    return agree


def n_words(cell: Cell, batch: Batch, table: np.ndarray) -> int:
    """Return how many words the output layer has for a batch."""
    if not cell.shortlist:
        return len(table)
    seen = np.unique([i for sentence in batch.sentences for i in sentence.ids])
    found = table[seen].ravel()
    return len(np.unique(np.concatenate([np.arange(FIRST), found[found >= 0], seen])))


def limit_seconds(
    name: str, cell: Cell, batches: Sequence[Batch], settings: ModelSettings, table: np.ndarray, rates: Spent
) -> float:
    """Return the least time at so many seconds for a byte and for an operation in float32."""
    width = BYTES[name.split()[-1]]
    total = 0.0
    for batch in batches:
        n_sentences, n, V = len(batch.sentences), batch.n_tokens, n_words(cell, batch, table)
        written = firefox_decoder_weights if name.startswith("fx") else decoder_weights
        reads = width * (encoder_weights(settings) + cross_weights(settings))
        flops = reading_flops(settings, [batch.n_source] * n_sentences) * width / 4
        total += max(reads * rates.wall_s, flops * rates.cpu_s)
        rows = [(batch.n_source, n)] * (n_sentences * cell.beam)
        total += max(
            width * written(settings, V) * n * rates.wall_s, writing_flops(settings, V, rows) * width / 4 * rates.cpu_s
        )
    return total


def measure(workers: dict[str, Worker], batches: Sequence[Batch], rounds: int) -> dict[str, list[Spent]]:
    """Let all systems take turns, round after round; a first one fills caches."""
    taken: dict[str, list[Spent]] = {name: [] for name in workers}
    for n in range(rounds + 1):
        for name, worker in workers.items():
            spent, _ = worker(batches)
            if n:
                taken[name].append(spent)
    return taken


def machine_rates(settings: ModelSettings, V: int) -> Spent:
    """Measure the seconds of a core for a byte that is read and for an operation in float32, at their best."""
    multiply, flops = large_product("cpu", torch.float32)
    n_bytes = decoder_weights(settings, V)
    read = large_read(n_bytes)
    return Spent(_best(read, 200) / n_bytes, _best(multiply, 10) / flops)


def _best(call: Callable[[], Any], n: int) -> float:
    taken = []
    for _ in range(n):
        began = time.thread_time()
        call()
        taken.append(time.thread_time() - began)
    return min(taken)


def rows_of(
    taken: dict[str, list[Spent]], limits: dict[str, float], agree: dict[str, float | None], n: int
) -> list[dict[str, Any]]:
    """Return medians with the middle half, in milliseconds a sentence, and each system's against ours."""
    rows = []
    ours = statistics.median(spent.cpu_s for spent in taken[AGAINST])
    for name, some in taken.items():
        row: dict[str, Any] = {"system": name}
        for field in Spent._fields:
            timing = quartiles([getattr(spent, field) * 1e3 / n for spent in some])
            short = f"{field[:-2]}_ms"
            row |= {short: timing.median, f"{short}_low": timing.low, f"{short}_high": timing.high}
        cpu = row["cpu_ms"] * n / 1e3
        rows.append(row | {"of_ours": cpu / ours, "of_limit": limits[name] / cpu, "agree": agree[name]})
    return rows


def table_of(title: str, rows: list[dict[str, Any]]) -> Table:
    """Show them."""
    table = Table(title=f"{title}; ms a sentence, medians (middle half)")
    for column in ("system", "CPU ms", "wall ms", "× our int8", "share of the limit", "tokens as ours"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for row in rows:
        shown = (
            f"{row[key]:.2f} ({row[f'{key}_low']:.2f} … {row[f'{key}_high']:.2f})" for key in ("cpu_ms", "wall_ms")
        )
        same = "" if row["agree"] is None else f"{row['agree']:.1%}"
        table.add_row(row["system"], *shown, f"{row['of_ours']:.2f}", f"{row['of_limit']:.0%}", same)
    return table


def bench(cell: Cell, found: dict[int, list[Sentence]], checkpoint: Checkpoint, given: Any, folder: Path) -> Any:
    """Measure one cell."""
    batches = make_batches(found, cell.batch, cell.natural)
    settings, table = checkpoint.settings.model, np.load(folder / "table.npy")
    workers = make_workers(cell, given.python, folder)
    try:
        agree = check({name: worker(batches)[1] for name, worker in workers.items()}, batches, checkpoint)
        rates = machine_rates(settings, n_words(cell, batches[0], table))
        taken = measure(workers, batches, given.rounds)
    finally:
        for worker in workers.values():
            worker.close()
    limits = {name: limit_seconds(name, cell, batches, settings, table, rates) for name in workers}
    n = sum(len(batch.sentences) for batch in batches)
    lengths = [(batch.n_source, batch.n_tokens, n_words(cell, batch, table)) for batch in batches]
    measured = {"bytes_per_s": 1 / rates.wall_s, "flops_per_s": 1 / rates.cpu_s, "lengths": lengths, "sentences": n}
    return {**vars(cell), "title": cell.title(), **measured, "rows": rows_of(taken, limits, agree, n)}


def main() -> None:
    """Convert, measure, show and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter with pymarian and fxtranslate")
    parser.add_argument("--data", required=True, help="parallel text, Chinese and English")
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--batches", nargs="+", type=int, choices=list(N_BATCHES), default=list(N_BATCHES))
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--natural", action="store_true", help="also with as many tokens as the references have")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    torch.set_num_threads(1)
    console, checkpoint = Console(width=140), load_model(named(MODEL))
    ways = given.batches, given.beams, (False, True), (False, True)[: 1 + given.natural]
    cells = [Cell(*each) for each in product(*ways)]
    pairs = list(islice(read_pairs([given.data], *MODEL.split("-")), given.lines))
    found = by_length(pairs, checkpoint)
    sign = signature("cpu", model=MODEL, data=Path(given.data).name, rounds=given.rounds, engine=engine())
    record: dict[str, Any] = {"signature": sign, "cells": []}
    with tempfile.TemporaryDirectory() as name:
        write_models(checkpoint, pairs, Path(name))
        for cell in cells:
            record["cells"].append(bench(cell, found, checkpoint, given, Path(name)))
            console.print(table_of(cell.title(), record["cells"][-1]["rows"]))
            keep("small_engines-cpu", record, given.results)


if __name__ == "__main__":
    main()
