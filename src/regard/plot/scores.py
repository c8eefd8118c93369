"""What the scores do, and why the dot product is scaled, as a figure."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.plot.heatmap import draw_weights, write_numbers
from regard.study.scores import ScoresStudy, Variance


@in_style
def draw_scores(study: ScoresStudy) -> Figure:
    """Draws each score's weights over the same words, and below them what the width does to a dot product."""
    figure = Drawing(figsize=(2.6 * len(study.scores), 6))
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.1, 1], squeeze=False)[:, 0]
    for axes, report in zip(top.subplots(1, len(study.scores), sharey=True), study.scores, strict=True):
        draw_weights(axes, report.weights, study.queries, study.keys, largest=1.0)
        write_numbers(axes, report.weights)
        axes.set_title(f"{report.name}\nscores ± {report.std:.1f}, entropy {report.entropy:.2f}")
    top.suptitle(
        f"The same random vectors, one for each word (width {study.width}), under every score", x=0.01, ha="left"
    )
    variance, largest, slope = bottom.subplots(1, 3)
    _draw_widths(variance, study.variances, "dot", "scaled", "variance of the score")
    _draw_widths(largest, study.variances, "largest_dot", "largest_scaled", "largest weight of a row")
    _draw_widths(slope, study.variances, "slope_dot", "slope_scaled", "gradient through the softmax, mean α(1 − α)")
    variance.set_yscale("log", base=2)
    widths = [v.width for v in study.variances]
    variance.plot(widths, widths, ":", color="black", linewidth=1, label="theory: the width")
    variance.legend(fontsize="small")
    return figure


def _draw_widths(axes: Axes, variances: list[Variance], dot: str, scaled: str, title: str) -> None:
    widths = [v.width for v in variances]
    axes.plot(widths, [getattr(v, dot) for v in variances], "o-", markersize=3, label="qᵀk")
    axes.plot(widths, [getattr(v, scaled) for v in variances], "o-", markersize=3, label="qᵀk / √width")
    axes.set_xscale("log", base=2)
    axes.set(title=title, xlabel="width")
