"""How do time and memory of each attention grow with the sequence length and with the batch?

Ceiling: the two products of attention take 4·n²·E operations for each head and sequence, and twice as many again for
the backward pass, at the rate of a large product measured in the same run; under a causal mask half of that. What is
materialised needs memory as n², what is fused as n.

One call is forward and backward of attention alone, as in the layer but without its projections: all heads, with
gradients for queries, keys, values and all parameters. Sizes double; each path stops, with a note, where the next size
would take more than the given seconds or memory. On a CPU one thread is used, and seconds are CPU time of the process,
for the limit too. On a GPU a call is a captured graph, because launched from Python all small sizes would take as long
as their launches; replays are queued between two events. Memory is the peak of one call beyond what was allocated
before it. The results file also has the fastest and the slowest repeat. Exponents are fitted to the last three sizes;
on a CPU tensors of more than 32 MiB are allocated from the system anew at each call, which makes materialised paths
grow faster than their products do.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import keep, large_product
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from regard.build import build_heads
from regard.config import HeadsSettings, PartSettings
from regard.engine.slots import capture
from regard.mask import Mask, causal
from regard.model import MultiHeadAttention
from regard.model.multihead import merge_heads, split_heads
from regard.study.repeats import signature
from regard.study.timing import SEEN, Timing, clock, exponent, peak_bytes, take_turns

# attention, position, mask, and whether it is computed by its definition
PATHS = {
    "scaled dot": ("scaled_dot", "none", Mask(), False),
    "scaled dot, causal": ("scaled_dot", "none", causal(), False),
    "scaled dot, definition": ("scaled_dot", "none", Mask(), True),
    "T5 table": ("scaled_dot", "t5", Mask(), False),
    "ALiBi": ("scaled_dot", "alibi", Mask(), False),
    "Shaw": ("scaled_dot", "shaw", Mask(), False),
    "additive": ("additive", "none", Mask(), False),
    "additive, definition": ("additive", "none", Mask(), True),
}
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
BATCHES = (1, 2, 4, 8, 16, 32)
SECONDS = {"cpu": 0.2, "cuda": 0.15}
POWER = {"length": 2, "batch": 1}  # with which a path must be expected to grow, before it was seen to grow less
SMALL = {"length": 1024, "batch": 4}  # up to which no path comes near the memory's limit, and the first stage ends
Step = Callable[[], Any]


@dataclass(frozen=True)
class Sizes:
    """What stays the same on one device: the heads, the other axis of each sweep, and when a path stops."""

    heads: int
    width: int  # of a head; additive attention has as many hidden units
    batch: int  # while lengths grow
    length: int  # while batches grow
    dtype: torch.dtype
    most_s: float
    most_mib: float


SIZES = {
    "cpu": Sizes(heads=1, width=64, batch=1, length=256, dtype=torch.float32, most_s=1.6, most_mib=3072),
    "cuda": Sizes(heads=8, width=64, batch=4, length=512, dtype=torch.bfloat16, most_s=0.2, most_mib=40960),
}


@dataclass(frozen=True)
class Task:
    """One call: what a child process needs to know to make it."""

    path: str
    batch: int
    length: int
    device: str


@dataclass
class Curve:
    """One path along one axis."""

    path: str
    axis: str
    sizes: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    low_ms: list[float] = field(default_factory=list)
    high_ms: list[float] = field(default_factory=list)
    extra_mib: list[float | None] = field(default_factory=list)
    stopped: str | None = None  # before which size, and why
    exponents: dict[str, float | None] = field(default_factory=dict)

    def expected(self, values: list[Any], size: int) -> float:
        """Gives what the next size should take, judged by the last that was measured."""
        known = [(at, value) for at, value in zip(self.sizes, values, strict=False) if value is not None]
        return known[-1][1] * (size / known[-1][0]) ** POWER[self.axis] if known else 0.0

    def add(self, size: int, timing: Timing) -> None:
        """Takes up what was measured at one size."""
        self.sizes.append(size)
        for values, seconds in ((self.ms, timing.median), (self.low_ms, timing.low), (self.high_ms, timing.high)):
            values.append(seconds * 1e3)


class Through(nn.Module):
    """Stands where a projection would, and changes nothing."""

    def __init__(self, width: int):
        super().__init__()
        self.in_features = width

    def forward(self, x: Tensor) -> Tensor:
        return x


def bare_layer(attention: str, position: str, sizes: Sizes, device: str) -> MultiHeadAttention:
    """Makes a layer of which attention is all that is left."""
    width = sizes.heads * sizes.width
    parts = PartSettings(attention), PartSettings(position)
    layer = build_heads(HeadsSettings(width, sizes.heads, attention=parts[0], position=parts[1]))
    for name in ("w_q", "w_k", "w_v", "w_o"):
        setattr(layer, name, Through(width))
    return layer.to(device, sizes.dtype)


def make_step(task: Task, device: torch.device) -> Step:
    """Makes one forward and backward pass."""
    torch.manual_seed(0)
    attention, position, mask, by_definition = PATHS[task.path]
    sizes = SIZES[task.device]
    layer = bare_layer(attention, position, sizes, task.device)
    shape = (task.batch, task.length, sizes.heads * sizes.width)
    q, k, v, ahead = (torch.randn(shape, device=device).to(sizes.dtype) for _ in range(4))
    learns = [*(x.requires_grad_() for x in (q, k, v)), *layer.parameters()]
    places = torch.arange(task.length, device=device)[None]

    def forward() -> Tensor:
        if not by_definition:
            return layer(q, k, v, places, places, mask)
        heads = [split_heads(x, sizes.heads) for x in (q, k, v)]
        return merge_heads(layer.attention.weights(heads[0], heads[1], mask) @ heads[2])

    return lambda: torch.autograd.grad(forward(), learns, ahead)


def queued(step: Step, seconds: float) -> Timing:
    """Times replays on a GPU, several between two events, so that the device never waits for one to be measured."""
    graph, _ = capture(step)
    first = _events(graph.replay, 2) / 2
    n = max(1, min(200, int(seconds / 5 / first)))
    taken = [_events(graph.replay, n) / n for _ in range(5)]
    return Timing(statistics.median(taken), min(taken), max(taken))


def _events(step: Step, n: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(n):
        step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def timed(step: Step, first: float, device: torch.device, seconds: float) -> Timing:
    """Times one path at one size, of which the first call took so long.

    Its repeats follow each other: one that comes after a path that gave much memory back would pay for taking it again.
    """
    if device.type == "cuda":
        return queued(step, seconds)
    return take_turns({"": step}, device, int(max(3, min(30, seconds / first))))[""]


def first_calls(tasks: list[Task], curves: dict[str, Curve], device: torch.device) -> tuple[dict, dict[str, float]]:
    """Makes every path's call and tries it once; one that fails says why and takes no further part."""
    steps, firsts = {}, {}
    for task in tasks:
        try:
            step = make_step(task, device)
            firsts[task.path] = clock(step, device)
            steps[task.path] = step
        except RuntimeError as error:  # out of memory, or a kernel that does not fit: no reason to lose the others
            why = str(error).strip().split("\n")[0][:120]
            curves[task.path].stopped = f"{_size(task, curves[task.path].axis)}: {why}"
    return steps, firsts


def _size(task: Task, axis: str) -> int:
    return task.length if axis == "length" else task.batch


def goes_on(curve: Curve, size: int, sizes: Sizes) -> bool:
    """Says whether a path takes part at the next size, and keeps why where it does not."""
    if curve.stopped is not None:
        return False
    seconds, mib = curve.expected(curve.ms, size) / 1e3, curve.expected(curve.extra_mib, size)
    if seconds > sizes.most_s:
        curve.stopped = f"{size}: about {seconds:.3g} s expected, {sizes.most_s:g} s are the limit"
    elif mib > sizes.most_mib:
        curve.stopped = f"{size}: about {mib:,.0f} MiB expected, {sizes.most_mib:,.0f} MiB are the limit"
    return curve.stopped is None


def sweep(axis: str, every: list[int], device: str, seconds: float, until: float) -> list[Curve]:
    """Measures all paths along one axis: a stage's times, then its memory, by which the next stage is judged."""
    sizes, place = SIZES[device], torch.device(device)
    curves = {path: Curve(path, axis) for path in PATHS}
    for stage in ([n for n in every if n <= SMALL[axis]], [n for n in every if n > SMALL[axis]]):
        done: list[Task] = []
        for size in stage:
            if time.perf_counter() > until:
                _stop_all(curves, size)
            going = [path for path, curve in curves.items() if goes_on(curve, size, sizes)]
            lengths, batches = (size, sizes.batch) if axis == "length" else (sizes.length, size)
            steps, firsts = first_calls([Task(path, batches, lengths, device) for path in going], curves, place)
            for path, step in steps.items():
                curves[path].add(size, timed(step, firsts[path], place, seconds))
                done.append(Task(path, batches, lengths, device))
            print(f"{axis} {size}: {len(steps)} paths", flush=True)
        found = (peak_bytes(make_step, done, place) if done else None) or [None] * len(done)
        for task, n_bytes in zip(done, found, strict=True):
            curves[task.path].extra_mib.append(None if n_bytes is None else n_bytes / 2**20)
    return [fitted(curve) for curve in curves.values()]


def _stop_all(curves: dict[str, Curve], size: int) -> None:
    for curve in curves.values():
        curve.stopped = curve.stopped or f"{size}: the time of the whole run was over"


def fitted(curve: Curve) -> Curve:
    """Adds the powers of the size with which time and memory grow over the last sizes."""
    curve.exponents = {
        "time": exponent(curve.sizes, curve.ms),
        "memory": exponent(curve.sizes, curve.extra_mib, SEEN),
    }
    return curve


def limits(axis: str, every: list[int], sizes: Sizes, rate: float) -> dict[str, list[float]]:
    """Gives the milliseconds that the products of all pairs take at least, forward and backward."""
    pairs = [(sizes.batch if axis == "length" else size, size if axis == "length" else sizes.length) for size in every]
    ms = [12 * batch * sizes.heads * length**2 * sizes.width / rate * 1e3 for batch, length in pairs]
    return {"sizes": list(every), "ms": ms}


def table(axis: str, curves: list[Curve]) -> Table:
    """Lists milliseconds and MiB."""
    every = sorted({size for curve in curves for size in curve.sizes})
    made = Table(title=f"Forward + backward over the {axis}: ms · extra MiB")
    for column in ("path", *map(str, every), "time ~", "memory ~"):
        made.add_column(column, justify="left" if column == "path" else "right")
    for curve in curves:
        cells = dict(zip(curve.sizes, zip(curve.ms, curve.extra_mib, strict=True), strict=True))
        shown = ["" if cells.get(size) is None else _cell(*cells[size]) for size in every]
        made.add_row(curve.path, *shown, *(_power(axis, curve.exponents[what]) for what in ("time", "memory")))
    return made


def _cell(ms: float, mib: float | None) -> str:
    return f"{ms:.3g}" if mib is None else f"{ms:.3g} · {mib:.0f}"


def _power(axis: str, power: float | None) -> str:
    return "–" if power is None else f"{'n' if axis == 'length' else 'B'}^{power:.2f}"


def main() -> None:
    """Measures along both axes and keeps the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=list(SIZES), default="cpu")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    parser.add_argument("--seconds", type=float, default=None, help="for each path and size, about")
    parser.add_argument("--limit", type=float, default=50.0, help="seconds after which a GPU begins no further size")
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    until = time.perf_counter() + given.limit if given.device == "cuda" else math.inf
    torch.set_num_threads(1)
    sizes, console = SIZES[given.device], Console(width=180)
    product, flops = large_product(given.device, sizes.dtype)
    place = torch.device(given.device)
    rate = flops / timed(product, clock(product, place), place, 0.5).median
    seconds = SECONDS[given.device] if given.seconds is None else given.seconds
    run = partial(sweep, device=given.device, seconds=seconds, until=until)
    by_batch = run("batch", given.batches)
    by_length = run("length", given.lengths)
    for axis, curves in (("length", by_length), ("batch", by_batch)):
        console.print(table(axis, curves))
        for curve in curves:
            if curve.stopped is not None:
                console.print(f"{curve.path} stopped before {axis} {curve.stopped}", markup=False)
    record: dict[str, Any] = {
        "signature": signature(given.device, seed=0, dtype=str(sizes.dtype)),
        "sizes": {**asdict(sizes), "dtype": str(sizes.dtype)},
        "flops_per_s": rate,
        "limit": {
            "length": limits("length", given.lengths, sizes, rate),
            "batch": limits("batch", given.batches, sizes, rate),
        },
        "curves": [asdict(curve) for curve in (*by_length, *by_batch)],
    }
    keep(f"growth-{given.device}", record, given.results)


if __name__ == "__main__":
    main()
