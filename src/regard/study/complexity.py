"""`regard study complexity`: what attention, recurrence and convolution cost."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table
from torch import nn

from regard.plot.style import in_style, new_figure
from regard.study.complexity_layers import (
    LAYERS,
    Depth,
    Throughput,
    TrainingSweep,
    count,
    measure_depth,
    measure_throughput,
)
from regard.study.repeats import signature
from regard.study.timing import Fit, Timing, fit_power, one_thread, peak_bytes, take_turns
from regard.terminal import QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIN_BYTES = 1 << 20  # below which a process's memory, counted in pages, is too coarse to fit
CHECKED_AT = (6, 8)  # n and d at which formulas are compared with the counter


@dataclass(frozen=True)
class Sweep:
    """The sizes that are measured: one of n and d grows, the other is fixed."""

    axis: str  # "n" or "d"
    sizes: tuple[int, ...]
    other: int
    batch: int  # enough sequences to keep matrix products busy

    def shape(self, size: int) -> tuple[int, int]:
        """Return n and d."""
        return (size, self.other) if self.axis == "n" else (self.other, size)


@dataclass(frozen=True)
class ComplexitySettings:
    """What is measured; a layer skips the sizes at which it would take more than `most` operations."""

    by_n: Sweep
    by_d: Sweep
    training: TrainingSweep = field(metadata={"json": "race"})
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
        training=TrainingSweep("tiny", lengths=(8, 16, 32, 64, 128), slots=1024),
        most=5e10,
    ),
    "cuda": ComplexitySettings(
        by_n=Sweep("n", (2048, 4096, 8192, 16384, 32768, 65536), other=256, batch=4),
        by_d=Sweep("d", (1024, 2048, 4096, 8192, 12288, 16384, 18432), other=1024, batch=16),
        training=TrainingSweep("small", lengths=(16, 32, 64, 128), slots=16384),
        most=1e14,
        last=3,
    ),
}


def quick(settings: ComplexitySettings) -> ComplexitySettings:
    """Leave out the largest sizes, and most repeats."""
    shorter = {name: replace(getattr(settings, name), sizes=getattr(settings, name).sizes[:-1]) for name in AXES}
    training = replace(settings.training, lengths=settings.training.lengths[:-2])
    return replace(
        settings, **shorter, training=training, rounds=3, most=settings.most / 8, depths=settings.depths[:-1]
    )


AXES = ("by_n", "by_d")


@dataclass(frozen=True)
class LayerTiming:
    """One layer at one size."""

    n: int
    d: int
    batch: int
    operations: int
    time: Timing
    bytes: int | None


@dataclass(frozen=True)
class ScalingCurve:
    """One layer along one axis, with fits of the counted operations and of the measured time and memory."""

    axis: str
    points: list[LayerTiming]
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
    by_n: ScalingCurve
    by_d: ScalingCurve


@dataclass(frozen=True)
class ComplexityStudy:
    """All layers, and the speed of parallel and stepwise training."""

    settings: ComplexitySettings
    device: str
    dtype: str
    layers: list[LayerReport]
    throughputs: list[Throughput] = field(metadata={"json": "paces"})
    signature: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer, as a child process needs to know it."""

    layer: str
    n: int
    d: int
    batch: int
    k: int
    seed: int


def run(
    settings: ComplexitySettings, device: torch.device, report: Callable[[str], None] = lambda what: None
) -> ComplexityStudy:
    """Measure all layers; `report` is told what is measured next."""
    check_formulas(settings.k)
    with one_thread():
        report("longest paths")
        depths = {name: [measure_depth(name, n, settings.k, settings.seed) for n in settings.depths] for name in LAYERS}
        curves: dict[str, dict[str, ScalingCurve]] = {}
        for name in AXES:
            report(f"time and memory over {name[-1]}")
            curves[name] = measure_sweep(getattr(settings, name), settings, device)
        report("training in parallel, training step by step")
        throughputs = measure_throughput(settings.training, device, settings.rounds, settings.seed)
        laws = [(name, law.formula, law.steps, law.path) for name, law in LAYERS.items()]
        layers = [LayerReport(*law, depths[law[0]], curves["by_n"][law[0]], curves["by_d"][law[0]]) for law in laws]
        signed = signature(str(device), seed=settings.seed, dtype=_name(_dtype(device)))
    return ComplexityStudy(settings, str(device), _name(_dtype(device)), layers, throughputs, signed)


def check_formulas(k: int) -> None:
    """Compare each formula with PyTorch's counter."""
    n, d = CHECKED_AT
    for name, law in LAYERS.items():
        counted = count(law.make(d, k), n, d)
        assert counted == law.operations(n, d, k), f"{name} takes {counted} operations, not {law.operations(n, d, k)}"


def measure_sweep(sweep: Sweep, settings: ComplexitySettings, device: torch.device) -> dict[str, ScalingCurve]:
    """Time all layers at all sizes in turn, and measure their memory."""
    tasks = [task for name in LAYERS for task in layer_calls(name, sweep, settings)]
    calls = {task: call for task in tasks if (call := make_tried_call(task, device)) is not None}
    tasks = list(calls)
    times = take_turns(calls, device, settings.rounds)
    memory = peak_bytes(make_call, tasks, device) or [None] * len(tasks)
    points: dict[str, list[LayerTiming]] = {name: [] for name in LAYERS}
    for task, needed in zip(tasks, memory, strict=True):
        operations = LAYERS[task.layer].operations(task.n, task.d, task.k)
        points[task.layer].append(LayerTiming(task.n, task.d, task.batch, task.batch * operations, times[task], needed))
    return {name: make_curve(name, sweep.axis, own, settings.last) for name, own in points.items()}


def make_tried_call(task: LayerCall, device: torch.device) -> Callable[[], Any] | None:
    """Make a call and try it once; None where a GPU has no memory or no kernel for it."""
    try:
        call = make_call(task, device)
        call()
    except RuntimeError:
        if device.type == "cpu":
            raise
        return None
    return call


def layer_calls(name: str, sweep: Sweep, settings: ComplexitySettings) -> list[LayerCall]:
    """Return the calls of one layer, at the sizes that it does not skip."""
    shapes = [sweep.shape(size) for size in sweep.sizes]
    work = [sweep.batch * LAYERS[name].operations(n, d, settings.k) for n, d in shapes]
    fits = [shape for shape, operations in zip(shapes, work, strict=True) if operations <= settings.most]
    if len(fits) < 2:
        raise ValueError(f"{name} must take part at 2 or more sizes of {sweep.axis}, got {len(fits)} of {sweep.sizes}")
    return [LayerCall(name, n, d, sweep.batch, settings.k, settings.seed) for n, d in fits]


def make_call(task: LayerCall, device: torch.device) -> Callable[[], Any]:
    """Make one pass of a layer over random input, without gradients."""
    torch.manual_seed(task.seed)
    with device:
        layer = LAYERS[task.layer].make(task.d, task.k).to(_dtype(device)).eval()
    x = torch.randn(task.batch, task.n, task.d, device=device, dtype=_dtype(device))
    return partial(_pass, layer, x)


def make_curve(name: str, axis: str, points: list[LayerTiming], last: int) -> ScalingCurve:
    """Fit exponents to the largest sizes."""
    sizes, law = [getattr(point, axis) for point in points], LAYERS[name]
    sized = [(getattr(each, axis), each.bytes) for each in points if each.bytes is not None and each.bytes >= MIN_BYTES]
    return ScalingCurve(
        axis=axis,
        points=points,
        theory=law.by_n if axis == "n" else law.by_d,
        operations=fit_power(sizes, [point.operations for point in points], last),
        time=fit_power(sizes, [point.time.median for point in points], last),
        bytes=fit_power([size for size, _ in sized], [n for _, n in sized], last) if len(sized) > 2 else None,
    )


@torch.no_grad()
def _pass(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(x)


def _dtype(device: torch.device) -> torch.dtype:
    return torch.float16 if device.type == "cuda" else torch.float32  # cuDNN has no recurrence in bfloat16


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


CAPTION = (
    "Exponents by least squares in logarithms over the largest sizes: counted, of time and of memory, and in brackets "
    "the theory. Steps and path: rounds of parallel work at the greatest length that was tried."
)


def laws_table(study: ComplexityStudy) -> Table:
    """List operations, steps, path and exponents of each layer."""
    n = study.settings.depths[-1]
    title = f"Layers over n × d inputs, convolution of width k = {study.settings.k}"
    table = Table(title=title, caption=CAPTION, **QUIET)
    exponents = ("n: counted", "time", "memory", "d: counted", "time")
    heads = ("layer", "opera-\ntions", *exponents, f"steps,\nn = {n}", f"path,\nn = {n}")
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
    """List the time and the memory of each layer at each size along one axis."""
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
        points = {getattr(point, axis): point for point in curve.points}
        cells = [_cell(points[size].time.median, points[size].bytes) if size in points else "–" for size in sizes]
        table.add_row(name, *cells, f"{curve.time.low} … {curve.time.high}")
    return table


def training_table(study: ComplexityStudy) -> Table:
    """List tokens per second of each way of training at each length."""
    sweep = study.settings.training
    title = f"Training steps of the preset {sweep.preset}, {sweep.slots:,} target tokens per batch: target tokens/s"
    table = Table(title=title, **QUIET)
    table.add_column("model")
    for length in sweep.lengths:
        table.add_column(f"{length} per sentence", justify="right")
    for way in dict.fromkeys(each.way for each in study.throughputs):
        by_length = {each.length: each.tokens_per_second for each in study.throughputs if each.way == way}
        table.add_row(way, *(f"{by_length[length]:,.0f}" for length in sweep.lengths))
    return table


def tables(study: ComplexityStudy) -> dict[str, Table]:
    """Return exponents, times over n and over d, and the speed of training."""
    times = {f"time-over-{axis}": sizes_table(study, axis) for axis in ("n", "d")}
    return {"laws": laws_table(study), **times, "training": training_table(study)}


def curve_of(layer: LayerReport, axis: str) -> ScalingCurve:
    """Return a layer's curve along one axis."""
    return layer.by_n if axis == "n" else layer.by_d


def _counted(curve: ScalingCurve) -> str:
    theory = "" if curve.theory is None else f" ({curve.theory:g})"
    return f"{curve.operations.exponent:.2f}{theory}"


def _exponent(fit: Fit) -> str:
    return f"{fit.exponent:.2f}"


def _cell(seconds: float, n_bytes: int | None) -> str:
    memory = "" if n_bytes is None else f" · {n_bytes / 2**20:,.0f}"
    return f"{1e3 * seconds:,.3g}{memory}" if seconds < 1 else f"{1e3 * seconds:,.0f}{memory}"


MIN_DRAWN = 1 << 18  # bytes below which a process's memory is not drawn


@in_style
def figure(study: ComplexityStudy) -> "Figure":
    """Draw time over n, time over d, memory over n, and training speeds over sentence lengths."""
    drawing = new_figure(figsize=(10, 7.4))
    by_n, by_d, memory, training = drawing.subplots(2, 2).flatten()
    _draw_times(by_n, study, "n")
    _draw_times(by_d, study, "d")
    _draw_memory(memory, study)
    _draw_throughput(training, study)
    return drawing


def _draw_times(axes: "Axes", study: ComplexityStudy, axis: str) -> None:
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


def _draw_memory(axes: "Axes", study: ComplexityStudy) -> None:
    for layer in study.layers:
        sizes = [(point.n, point.bytes or 0) for point in layer.by_n.points]
        points = [(n, size / 2**20) for n, size in sizes if size > MIN_DRAWN]
        fit = layer.by_n.bytes
        label = layer.name if fit is None else f"{layer.name}: n^{fit.exponent:.2f}"
        axes.plot([n for n, _ in points], [size for _, size in points], "o-", markersize=4, linewidth=1, label=label)
    if any(layer.by_n.bytes for layer in study.layers):
        _log_log(axes)
    axes.set(title="Peak MiB of a pass over n, beyond its input", xlabel="n", ylabel="MiB")


def _draw_throughput(axes: "Axes", study: ComplexityStudy) -> None:
    for way in dict.fromkeys(each.way for each in study.throughputs):
        own = [each for each in study.throughputs if each.way == way]
        lengths = [each.length for each in own]
        (line,) = axes.plot(lengths, [each.tokens_per_second for each in own], "o-", markersize=4, label=way)
        ends = [each.slowest for each in own], [each.fastest for each in own]
        axes.vlines(lengths, *ends, color=line.get_color(), linewidth=1)
    _log_log(axes)
    axes.set(title="Target tokens/s in training", xlabel="tokens per sentence", ylabel="tokens/s")


def _log_log(axes: "Axes") -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.legend(fontsize="x-small")
