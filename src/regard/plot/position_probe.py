"""How well a probe tells the position along the stream, as a figure."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plot.drawing import Drawing
from regard.plot.figure import COLOURS, in_style
from regard.plot.probe_table import KINDS, kind
from regard.study.position_probe import ProbeStudy, Reading, StackReadings

LOWEST = -0.25  # R² below this is drawn at the edge
LINES = {"with": "o-", "without": "s-", "with, untaught": "o:", "without, untaught": "s:"}


@in_style
def draw_position_probe(study: ProbeStudy) -> Figure:
    """Draws both stacks of the model, and below them those of the small models."""
    figure = Drawing(figsize=(10, 6.6))
    axes = figure.subplots(2, 2, sharey=True)
    for place, stack in zip(axes[0], study.stacks, strict=True):
        _draw_stack(place, stack, f"{study.model}: {stack.stack}")
    for number, place in enumerate(axes[1]):
        for small in study.small:
            stack, name = small.stacks[number], KINDS[kind(small)]
            _curve(place, [reading.point for reading in stack.points], stack.points, LINES[name], name)
        place.set(title=f"small models, residuals: {study.small[0].stacks[number].stack}")
    for row in axes:
        row[0].set_ylabel("R² of the place, held-out sentences")
        for place in row:
            place.axhline(0, color="0.7", linewidth=0.8, zorder=0)
            place.set_ylim(LOWEST - 0.05, 1.05)
            place.legend(fontsize="small")
    return figure


def _draw_stack(axes: Axes, stack: StackReadings, title: str) -> None:
    """Draws the stream after each layer, and between the layers what their sub-layers write."""
    names = [reading.point for reading in stack.points]
    _curve(axes, names, stack.points, "o-", "the stream")
    n = len(stack.updates) // max(1, len(names) - 1)
    places = [layer + (part + 1) / (n + 1) for layer in range(len(names) - 1) for part in range(n)]
    updates = [max(LOWEST, reading.place.mean) for reading in stack.updates]
    axes.plot(places, updates, "x", color=COLOURS[1], label="a sub-layer's update alone")
    for reading, name, colour in ((stack.codes, "codes alone", 2), (stack.words, "words alone", 3)):
        if reading is not None:
            axes.axhline(reading.place.mean, linestyle="--", linewidth=1, color=COLOURS[colour], label=name)
    shuffled = [max(LOWEST, reading.shuffled.mean) for reading in stack.points]
    axes.plot(range(len(names)), shuffled, ".:", color="0.5", label="places shuffled")
    axes.set(title=title)


def _curve(axes: Axes, names: list[str], readings: list[Reading], line: str, label: str) -> None:
    means = [max(LOWEST, reading.place.mean) for reading in readings]
    axes.errorbar(
        range(len(names)), means, [reading.place.spread for reading in readings], fmt=line, markersize=4, label=label
    )
    axes.set_xticks(range(len(names)), names, rotation=20)
