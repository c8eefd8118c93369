"""`study complexity`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from torch import nn

from regard.plot.style import Drawing, in_style
from regard.plot.terminal import QUIET
from regard.study.complexity_layers import LAYERS, Depth, Pace, Race, count, measure_depth, run_races
from regard.study.stats import signature
from regard.study.timing import Fit, Timing, fit_power, one_thread, peak_bytes, take_turns

SEEN = 1 << 20  # bytes below which a process's memory, which is counted in pages, tells little
SMALL = (6, 8)  # n and d at which formulas are compared with the counter


@dataclass(frozen=True)
class Sweep:
    """Which sizes are measured: one of n and d grows, the other stays."""

    axis: str  # "n" or "d"
    sizes: tuple[int, ...]
    other: int
    batch: int  # sequences side by side, so that matrix products have enough to do

    def shape(self, size: int) -> tuple[int, int]:
        """Gives n and d."""
        return (size, self.other) if self.axis == "n" else (self.other, size)


@dataclass(frozen=True)
class ComplexitySettings:
    """What is measured; a layer sits out the sizes at which it would take more than `most` operations."""

    by_n: Sweep
    by_d: Sweep
    race: Race
    most: float
    last: int = 4  # sizes that an exponent is fitted to
    k: int = 3
    rounds: int = 5
    depths: tuple[int, ...] = (4, 8, 16, 32)
    seed: int = 0


# On a CPU a size is large enough where products are large against the overhead of some ten microseconds a call, and
# small enough where no tensor exceeds 32 MiB, from which on glibc asks the system for memory anew at each call. On a
# GPU the definition takes 1.7 times as long for a weight with up to 8,192 keys as it does from 16,384 on, and a
# recurrence's step has some 30 microseconds of its own, against which it must read long: that takes thousands of
# features, of which cuDNN bears less than 18,919 (2³¹ weights in both its matrices).
SETTINGS = {
    "cpu": ComplexitySettings(
        by_n=Sweep("n", (64, 128, 256, 512, 1024, 2048), other=256, batch=1),
        by_d=Sweep("d", (64, 128, 256, 512, 1024, 2048), other=256, batch=8),
        race=Race("tiny", lengths=(8, 16, 32, 64, 128), slots=1024),
        most=5e10,
    ),
    "cuda": ComplexitySettings(
        by_n=Sweep("n", (2048, 4096, 8192, 16384, 32768, 65536), other=256, batch=4),
        by_d=Sweep("d", (1024, 2048, 4096, 8192, 12288, 16384, 18432), other=1024, batch=16),
        race=Race("small", lengths=(16, 32, 64, 128), slots=16384),
        most=1e14,
        last=3,
    ),
}


def quick(settings: ComplexitySettings) -> ComplexitySettings:
    """Leaves out the largest sizes, and most repeats."""
    shorter = {name: replace(getattr(settings, name), sizes=getattr(settings, name).sizes[:-1]) for name in AXES}
    race = replace(settings.race, lengths=settings.race.lengths[:-2])
    return replace(settings, **shorter, race=race, rounds=3, most=settings.most / 8, depths=settings.depths[:-1])


AXES = ("by_n", "by_d")


@dataclass(frozen=True)
class Point:
    """One layer at one size."""

    n: int
    d: int
    batch: int
    operations: int
    time: Timing
    bytes: int | None


@dataclass(frozen=True)
class Curve:
    """One layer along one axis; fits of what was counted and of what was measured."""

    axis: str
    points: list[Point]
    theory: float | None
    operations: Fit
    time: Fit
    bytes: Fit | None


@dataclass(frozen=True)
class LayerReport:
    """One layer."""

    name: str
    formula: str
    steps: str
    path: str
    depths: list[Depth]
    by_n: Curve
    by_d: Curve


@dataclass(frozen=True)
class ComplexityStudy:
    """All layers, and the two ways of training beside each other (S8.2)."""

    settings: ComplexitySettings
    device: str
    dtype: str
    layers: list[LayerReport]
    paces: list[Pace]
    signature: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """One call: what a child process needs to know to make it."""

    layer: str
    n: int
    d: int
    batch: int
    k: int
    seed: int


def run_complexity(settings: ComplexitySettings, device: torch.device) -> Iterator[str | ComplexityStudy]:
    """Says what it turns to, and in the end gives the study."""
    check_formulas(settings.k)
    with one_thread():
        yield "longest paths"
        depths = {name: [measure_depth(name, n, settings.k, settings.seed) for n in settings.depths] for name in LAYERS}
        curves: dict[str, dict[str, Curve]] = {}
        for name in AXES:
            yield f"time and memory over {name[-1]}"
            curves[name] = measure_sweep(getattr(settings, name), settings, device)
        yield "training in parallel, training step by step"
        paces = run_races(settings.race, device, settings.rounds, settings.seed)
        laws = [(name, law.formula, law.steps, law.path) for name, law in LAYERS.items()]
        layers = [LayerReport(*law, depths[law[0]], curves["by_n"][law[0]], curves["by_d"][law[0]]) for law in laws]
        told = signature(str(device), seed=settings.seed, dtype=_name(_dtype(device)))
    yield ComplexityStudy(settings, str(device), _name(_dtype(device)), layers, paces, told)


def check_formulas(k: int) -> None:
    """Compares each formula with what PyTorch's counter sees go by."""
    n, d = SMALL
    for name, law in LAYERS.items():
        counted = count(law.make(d, k), n, d)
        assert counted == law.operations(n, d, k), f"{name} takes {counted} operations, not {law.operations(n, d, k)}"


def measure_sweep(sweep: Sweep, settings: ComplexitySettings, device: torch.device) -> dict[str, Curve]:
    """Times all layers at all sizes in turn, and measures their memory."""
    tasks = [task for name in LAYERS for task in tasks_of(name, sweep, settings)]
    calls = {task: call for task in tasks if (call := tried(task, device)) is not None}
    tasks = list(calls)
    times = take_turns(calls, device, settings.rounds)
    memory = peak_bytes(make_call, tasks, device) or [None] * len(tasks)
    points: dict[str, list[Point]] = {name: [] for name in LAYERS}
    for task, needed in zip(tasks, memory, strict=True):
        operations = LAYERS[task.layer].operations(task.n, task.d, task.k)
        points[task.layer].append(Point(task.n, task.d, task.batch, task.batch * operations, times[task], needed))
    return {name: make_curve(name, sweep.axis, found, settings.last) for name, found in points.items()}


def tried(task: Task, device: torch.device) -> Callable[[], Any] | None:
    """Makes a call and tries it once; None where a GPU has no memory or no kernel for it."""
    try:
        call = make_call(task, device)
        call()
    except RuntimeError:
        if device.type == "cpu":
            raise
        return None
    return call


def tasks_of(name: str, sweep: Sweep, settings: ComplexitySettings) -> list[Task]:
    """Gives the sizes at which a layer takes part."""
    shapes = [sweep.shape(size) for size in sweep.sizes]
    work = [sweep.batch * LAYERS[name].operations(n, d, settings.k) for n, d in shapes]
    fits = [shape for shape, operations in zip(shapes, work, strict=True) if operations <= settings.most]
    if len(fits) < 2:
        raise ValueError(f"{name} must take part at 2 or more sizes of {sweep.axis}, got {len(fits)} of {sweep.sizes}")
    return [Task(name, n, d, sweep.batch, settings.k, settings.seed) for n, d in fits]


def make_call(task: Task, device: torch.device) -> Callable[[], Any]:
    """Makes one pass of a layer over random input, without gradients."""
    torch.manual_seed(task.seed)
    with device:
        layer = LAYERS[task.layer].make(task.d, task.k).to(_dtype(device)).eval()
    x = torch.randn(task.batch, task.n, task.d, device=device, dtype=_dtype(device))
    return partial(_pass, layer, x)


def make_curve(name: str, axis: str, points: list[Point], last: int) -> Curve:
    """Fits exponents to the largest sizes."""
    sizes, law = [getattr(point, axis) for point in points], LAYERS[name]
    seen = [(getattr(point, axis), point.bytes) for point in points if point.bytes is not None and point.bytes >= SEEN]
    return Curve(
        axis=axis,
        points=points,
        theory=law.by_n if axis == "n" else law.by_d,
        operations=fit_power(sizes, [point.operations for point in points], last),
        time=fit_power(sizes, [point.time.median for point in points], last),
        bytes=fit_power([size for size, _ in seen], [n for _, n in seen], last) if len(seen) > 2 else None,
    )


@torch.no_grad()
def _pass(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(x)


def _dtype(device: torch.device) -> torch.dtype:
    return torch.float16 if device.type == "cuda" else torch.float32  # cuDNN has no recurrence in bfloat16


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


CAPTION = (
    "Exponents by least squares in logarithms over the largest sizes: what was counted, what time and memory did, and "
    "in brackets what the theory says. Steps and path: rounds of parallel work at the greatest length that was tried."
)


def laws_table(study: ComplexityStudy) -> Table:
    """Lists operations, steps, path and exponents of each layer."""
    n = study.settings.depths[-1]
    title = f"Layers over n × d inputs, convolution of width k = {study.settings.k}"
    table = Table(title=title, caption=CAPTION, **QUIET)
    heads = (
        "layer",
        "opera-\ntions",
        "n: counted",
        "time",
        "memory",
        "d: counted",
        "time",
        f"steps,\nn = {n}",
        f"path,\nn = {n}",
    )
    for head in heads:
        table.add_column(head, justify="left" if head in heads[:2] else "right")
    for layer in study.layers:
        depth = layer.depths[-1]
        steps, path = f"{depth.steps} ({layer.steps})", f"{depth.path} ({layer.path})"
        memory = "–" if layer.by_n.bytes is None else f"{layer.by_n.bytes.exponent:.2f}"
        by_n = (_counted(layer.by_n), _exponent(layer.by_n.time), memory)
        by_d = (_counted(layer.by_d), _exponent(layer.by_d.time))
        table.add_row(layer.name, layer.formula, *by_n, *by_d, steps, path)
    return table


def sizes_table(study: ComplexityStudy, axis: str) -> Table:
    """Lists the time and the memory of each layer at each size along one axis."""
    curves = {layer.name: curve_of(layer, axis) for layer in study.layers}
    first = next(iter(curves.values())).points[0]
    other = f"d = {first.d}" if axis == "n" else f"n = {first.n}"
    title = f"One pass, batches of {first.batch}, {other}: milliseconds, and peak MiB beyond the input"
    table = Table(title=title, **QUIET)
    table.add_column("layer")
    sizes = sorted({getattr(point, axis) for curve in curves.values() for point in curve.points})
    for size in sizes:
        table.add_column(f"{axis} = {size}", justify="right")
    table.add_column("fit over", justify="right")
    for name, curve in curves.items():
        found = {getattr(point, axis): point for point in curve.points}
        cells = [_cell(found[size].time.median, found[size].bytes) if size in found else "–" for size in sizes]
        table.add_row(name, *cells, f"{curve.time.low} … {curve.time.high}")
    return table


def paces_table(study: ComplexityStudy) -> Table:
    """Lists tokens per second of each way of training at each length."""
    race = study.settings.race
    title = f"Training steps of the preset {race.preset}, {race.slots:,} target tokens a batch: target tokens/s"
    table = Table(title=title, **QUIET)
    table.add_column("way")
    for length in race.lengths:
        table.add_column(f"{length} a sentence", justify="right")
    for way in dict.fromkeys(pace.way for pace in study.paces):
        found = {pace.length: pace for pace in study.paces if pace.way == way}
        table.add_row(way, *(f"{found[length].tokens_per_second:,.0f}" for length in race.lengths))
    return table


def complexity_tables(study: ComplexityStudy) -> list[Table]:
    """Gives all tables."""
    return [laws_table(study), sizes_table(study, "n"), sizes_table(study, "d"), paces_table(study)]


def curve_of(layer: LayerReport, axis: str) -> Curve:
    """Gives a layer's curve along one axis."""
    return layer.by_n if axis == "n" else layer.by_d


def _counted(curve: Curve) -> str:
    theory = "" if curve.theory is None else f" ({curve.theory:g})"
    return f"{curve.operations.exponent:.2f}{theory}"


def _exponent(fit: Fit) -> str:
    return f"{fit.exponent:.2f}"


def _cell(seconds: float, n_bytes: int | None) -> str:
    memory = "" if n_bytes is None else f" · {n_bytes / 2**20:,.0f}"
    return f"{1e3 * seconds:,.3g}{memory}" if seconds < 1 else f"{1e3 * seconds:,.0f}{memory}"


FAINT = 1 << 18  # bytes below which a process's memory tells nothing


@in_style
def draw_complexity(study: ComplexityStudy) -> Figure:
    """Draws time over n, time over d, memory over n, and training speeds over sentence lengths."""
    figure = Drawing(figsize=(10, 7.4))
    by_n, by_d, memory, pace = figure.subplots(2, 2).flatten()
    _draw_times(by_n, study, "n")
    _draw_times(by_d, study, "d")
    _draw_memory(memory, study)
    _draw_paces(pace, study)
    return figure


def _draw_times(axes: Axes, study: ComplexityStudy, axis: str) -> None:
    for layer in study.layers:
        curve = curve_of(layer, axis)
        sizes, times = [getattr(point, axis) for point in curve.points], [point.time for point in curve.points]
        theory = "" if curve.theory is None else f", theory {curve.theory:g}"
        label = f"{layer.name}: {axis}^{curve.time.exponent:.2f}{theory}"
        (line,) = axes.plot(sizes, [time.median for time in times], "o", markersize=4, label=label)
        axes.vlines(sizes, [time.low for time in times], [time.high for time in times], color=line.get_color(), lw=1)
        ends = [curve.time.low, curve.time.high]
        fitted = [curve.time.factor * end**curve.time.exponent for end in ends]
        axes.plot(ends, fitted, color=line.get_color(), linewidth=1)
    _log_log(axes)
    axes.set(title=f"Seconds of a pass over {axis}, lines: fits", xlabel=axis, ylabel="s")


def _draw_memory(axes: Axes, study: ComplexityStudy) -> None:
    for layer in study.layers:
        sizes = [(point.n, point.bytes or 0) for point in layer.by_n.points]
        points = [(n, size / 2**20) for n, size in sizes if size > FAINT]
        fit = layer.by_n.bytes
        label = layer.name if fit is None else f"{layer.name}: n^{fit.exponent:.2f}"
        axes.plot([n for n, _ in points], [size for _, size in points], "o-", markersize=4, linewidth=1, label=label)
    if any(layer.by_n.bytes for layer in study.layers):
        _log_log(axes)
    axes.set(title="Peak MiB of a pass over n, beyond its input", xlabel="n", ylabel="MiB")


def _draw_paces(axes: Axes, study: ComplexityStudy) -> None:
    for way in dict.fromkeys(pace.way for pace in study.paces):
        found = [pace for pace in study.paces if pace.way == way]
        lengths = [pace.length for pace in found]
        (line,) = axes.plot(lengths, [pace.tokens_per_second for pace in found], "o-", markersize=4, label=way)
        ends = [pace.slowest for pace in found], [pace.fastest for pace in found]
        axes.vlines(lengths, *ends, color=line.get_color(), linewidth=1)
    _log_log(axes)
    axes.set(title="Target tokens/s in training", xlabel="tokens of a sentence", ylabel="tokens/s")


def _log_log(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.legend(fontsize="x-small")
