"""How position schemes fare beyond the lengths that they learned from, as a figure."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.study.extrapolate import ExtrapolateStudy, SchemeReport

MARKS = ["-", "--", ":"]
STEEP = 8.0  # ratio from which on a scale of logarithms tells more


@in_style
def draw_extrapolate(study: ExtrapolateStudy) -> Figure:
    """Draws the loss against that at n for each length, and the loss at each place of the longest texts."""
    figure = Drawing(figsize=(10, 4.2))
    ratios, places = figure.subplots(1, 2)
    for at, scheme in enumerate(study.schemes):
        style = MARKS[at // 7 % len(MARKS)]
        _draw_ratios(ratios, scheme, style)
        places.plot(range(1, len(scheme.by_place) + 1), scheme.by_place, style, linewidth=1.2)
    ratios.axhline(1.0, color="black", linewidth=0.5)
    ratios.set(title="Loss against that at n", xlabel="length, in n", ylabel="ratio", xticks=[1, 2, 3, 4])
    if ratios.get_ylim()[1] > STEEP:
        ratios.set_yscale("log")
    ratios.legend(fontsize="x-small", ncols=2)
    places.axvline(study.settings.longest, color="black", linewidth=0.5)
    places.set(title="−log p at each place; learned from places up to the line", xlabel="place")
    return figure


def _draw_ratios(axes: Axes, scheme: SchemeReport, style: str) -> None:
    known = [(fold, length.ratio) for fold, length in enumerate(scheme.lengths, start=1) if length.ratio is not None]
    folds, means = [fold for fold, _ in known], [ratio.mean for _, ratio in known]
    axes.errorbar(
        folds,
        means,
        yerr=[ratio.spread for _, ratio in known],
        fmt=f"o{style}",
        markersize=3,
        linewidth=1.2,
        label=scheme.name if len(known) == len(scheme.lengths) else f"{scheme.name} (ends at {folds[-1]}n)",
    )
