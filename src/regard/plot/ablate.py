"""What each part is worth, as a figure."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plot.drawing import Drawing
from regard.plot.figure import COLOURS, in_style
from regard.study.ablate import Ablation, Line
from regard.study.one_run import Row
from regard.study.variants import BASELINE


@in_style
def draw_ablation(found: Ablation) -> Figure:
    """Draws the variants sorted by quality, each seed a point, and the curves of validation loss."""
    lines = sorted((line for line in found.lines if line.quality), key=quality)
    figure = Drawing(figsize=(11, 1.2 + 0.26 * max(12, len(lines))))
    bars, curves = figure.subplots(1, 2, width_ratios=[1.2, 1])
    parts = list(dict.fromkeys(line.part for line in found.lines))
    colours = {part: COLOURS[at % len(COLOURS)] for at, part in enumerate(parts)}
    _draw_bars(bars, lines, found, colours)
    _draw_curves(curves, found.rows, colours)
    return figure


def quality(line: Line) -> float:
    """Gives what variants are sorted by."""
    return line.quality.mean if line.quality is not None else 0.0


def mean_curve(rows: list[Row]) -> list[tuple[float, float]]:
    """Gives steps and validation losses, averaged over the seeds that were judged there."""
    losses: dict[float, list[float]] = {}
    for row in rows:
        for found in row.curve:
            losses.setdefault(float(found["step"]), []).append(found["loss"])
    return [(step, sum(values) / len(values)) for step, values in sorted(losses.items())]


def _draw_bars(axes: Axes, lines: list[Line], found: Ablation, colours: dict[str, str]) -> None:
    by_variant = {line.variant: at for at, line in enumerate(lines)}
    for at, line in enumerate(lines):
        deviation = line.quality.spread if line.quality is not None else 0.0
        axes.errorbar([quality(line)], [at], xerr=[deviation], fmt="o", color=colours[line.part], markersize=5)
    for row in found.rows:
        value = row.bleu_test if found.measured_on == "test" else row.bleu_valid
        if value is not None and row.variant in by_variant:
            axes.plot([value], [by_variant[row.variant]], "|", color="black", markersize=6, alpha=0.6)
    base = next((line for line in lines if line.variant == BASELINE), None)
    if base is not None:
        axes.axvline(quality(base), color="black", linewidth=0.5)
    axes.set_yticks(range(len(lines)), [line.variant for line in lines])
    axes.set(title=f"BLEU on the {found.measured_on}: mean ± deviation, strokes: seeds", xlabel="BLEU")
    axes.grid(axis="x", alpha=0.2)


def _draw_curves(axes: Axes, rows: list[Row], colours: dict[str, str]) -> None:
    drawn: set[str] = set()
    for variant in dict.fromkeys(row.variant for row in rows if row.curve):
        mine = [row for row in rows if row.variant == variant]
        curve, part = mean_curve(mine), mine[0].part
        label = None if part in drawn else part or BASELINE
        drawn.add(part)
        width = 2.0 if variant == BASELINE else 0.9
        axes.plot([step for step, _ in curve], [loss for _, loss in curve], color=colours[part], lw=width, label=label)
    axes.set(title="Validation loss, means over seeds", xlabel="step")
    axes.legend(fontsize="small")
