"""Is the library that comes with a wheel as fast as one that is compiled for just this machine?

Ceiling: 1, as both are of the same sources; the wheel's has one file for each set of instructions, and the compiler may
schedule for any processor that has them. The cells are those of decode.py, with its shapes, batches and forced lengths;
both libraries are in one process and take turns. Seconds are those of the process's cores, which other work on the
machine hardly moves; with two threads they show what both cores did.
"""

import argparse
import os
import tempfile
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from measure import keep, quartiles
from peers.ours import Decode, decode_regard
from peers.work import Task, make_tasks, read_lengths, shape
from rich.console import Console
from rich.table import Table

from regard.build import build_model
from regard.engine import select_engine
from regard.native import HERE, SWITCH, open_library
from regard.native.build import build_here
from regard.native.libraries import cache_folder
from regard.padding import EOS
from regard.study.repeats import signature

TARGET = 0.97  # of the speed of the library of just this machine, in every cell
N_TASKS = {1: 9, 64: 2}


def engines(name: str, precision: str, levels: list[str], beam: int) -> tuple[dict[str, Decode], int]:
    """Return the call that decodes with each library, and the size of the vocabulary."""
    sizes, vocab_size = shape(name, dropout=0.0)
    torch.manual_seed(0)
    model = build_model(sizes, (vocab_size, vocab_size)).eval()
    with torch.no_grad():
        model.get_parameter("tgt.table.weight")[:EOS] = 0.0
    made = {}
    for level in levels:
        os.environ[SWITCH] = level
        made[level] = decode_regard(select_engine(model, precision), beam)
    return made, vocab_size


def measure(calls: dict[str, Any], seconds: float, rounds: int) -> dict[str, list[float]]:
    """Let both take turns, each first in every other round."""
    taken: dict[str, list[float]] = {level: [] for level in calls}
    began, n = time.perf_counter(), 0
    for call in calls.values():
        call()
    while n < rounds or time.perf_counter() - began < seconds:
        for level in list(calls)[:: 1 if n % 2 else -1]:
            start = time.process_time()
            calls[level]()
            taken[level].append(time.process_time() - start)
        n += 1
    return taken


def bench(cell: tuple[str, str, int, int, int], levels: list[str], seconds: float, rounds: int) -> dict[str, Any]:
    """Measure both libraries on one shape, precision, batch, beam and number of threads."""
    name, precision, batch, beam, threads = cell
    torch.set_num_threads(threads)
    made, vocab_size = engines(name, precision, levels, beam)
    tasks: list[Task] = make_tasks(read_lengths(None), batch, N_TASKS[batch], vocab_size)
    taken = measure({level: partial(decode, tasks) for level, decode in made.items()}, seconds, rounds)
    times = {level: quartiles(some) for level, some in taken.items()}
    wheel, here = (times[level].median for level in levels)
    pairs = quartiles([b / a for a, b in zip(*(taken[level] for level in levels), strict=True)])
    cpu = {level: {"s": timing.median, "low_s": timing.low, "high_s": timing.high} for level, timing in times.items()}
    where = {"shape": name, "precision": precision, "batch": batch, "beam": beam, "threads": threads}
    speed = {"speed": here / wheel, "pairs": pairs.median, "pairs_low": pairs.low, "pairs_high": pairs.high}
    return {**where, "rounds": len(taken[levels[0]]), "cpu": cpu, **speed}


def table_of(cells: list[dict[str, Any]], levels: list[str]) -> Table:
    """Show all cells."""
    table = Table(title=f"CPU ms a call, {levels[0]} of the wheel against {levels[1]}; target {TARGET}")
    for head in ("cell", *levels, "speed", "round by round (middle half)"):
        table.add_column(head, justify="left" if head == "cell" else "right")
    for cell in cells:
        names = f"{cell['shape']}, {cell['precision']}, batch {cell['batch']}, beam {cell['beam']}"
        times = (f"{cell['cpu'][level]['s'] * 1e3:.1f}" for level in levels)
        pairs = f"{cell['pairs']:.3f} ({cell['pairs_low']:.3f} … {cell['pairs_high']:.3f})"
        table.add_row(f"{names}, {cell['threads']} threads", *times, f"{cell['speed']:.3f}", pairs)
    return table


def main() -> None:
    """Compile, measure, show and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=["tiny", "small", "base"], default=["small", "base"])
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"])
    parser.add_argument("--batches", nargs="+", type=int, choices=list(N_TASKS), default=list(N_TASKS))
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--seconds", type=float, default=10.0, help="for each cell, at least")
    parser.add_argument("--rounds", type=int, default=10, help="for each cell, at least")
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    cells: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        levels = [open_library().level, HERE]
        build_here(cache_folder())
        ways = product(given.shapes, given.precisions, given.batches, given.beams, given.threads)
        for cell in ways:
            cells.append(bench(cell, levels, given.seconds, given.rounds))
            print(cells[-1], flush=True)
    Console(width=140).print(table_of(cells, levels))
    missed = [cell for cell in cells if cell["pairs"] < TARGET]
    sign = signature("cpu", seed=0, lengths="built in", levels=levels)
    keep(
        "native_levels-cpu", {"signature": sign, "target": TARGET, "missed": len(missed), "cells": cells}, given.results
    )


if __name__ == "__main__":
    main()
