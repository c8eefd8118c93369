"""What layers cost as their input grows, as a figure."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plot.complexity_table import curve_of
from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.study.complexity import ComplexityStudy

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
