"""A run's losses and scores as a figure."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.train.state import Progress

SCORES = {"bleu": "BLEU", "chrf": "chrF"}


@in_style
def draw_training(progress: Progress) -> Figure:
    """Draws the loss of training and validation over the steps, and the scores of validation where there are any."""
    scored = not progress.valid or "bleu" in progress.valid[-1]
    figure = Drawing(figsize=(9 if scored else 4.8, 3.4))
    loss, *rest = figure.subplots(1, 2 if scored else 1, squeeze=False)[0]
    if progress.losses:
        loss.plot(*zip(*progress.losses, strict=True), label="training, dropout on")
    steps = [found["step"] for found in progress.valid]
    loss.plot(steps, [found["loss"] for found in progress.valid], "o-", markersize=3, label="validation")
    loss.set(title="−log p of a target token", xlabel="step")
    loss.legend()
    for axes in rest:
        _draw_scores(axes, progress)
    return figure


def _draw_scores(axes: Axes, progress: Progress) -> None:
    steps = [found["step"] for found in progress.valid]
    for name, label in SCORES.items():
        axes.plot(steps, [found[name] for found in progress.valid], "o-", markersize=3, label=label)
    axes.set(title="validation, greedy", xlabel="step")
    axes.legend()
