"""A run's losses and scores as a figure."""

from matplotlib.figure import Figure

from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.train.state import Progress


@in_style
def draw_training(progress: Progress) -> Figure:
    """Draws the loss of training and validation, and the scores of validation, over the steps."""
    figure = Drawing(figsize=(9, 3.4))
    loss, bleu = figure.subplots(1, 2)
    if progress.losses:
        loss.plot(*zip(*progress.losses, strict=True), label="training, dropout on")
    steps = [found["step"] for found in progress.valid]
    loss.plot(steps, [found["loss"] for found in progress.valid], "o-", markersize=3, label="validation")
    loss.set(title="−log p of a target token", xlabel="step")
    loss.legend()
    for name in ("bleu", "chrf"):
        bleu.plot(
            steps,
            [found[name] for found in progress.valid],
            "o-",
            markersize=3,
            label={"bleu": "BLEU", "chrf": "chrF"}[name],
        )
    bleu.set(title="validation, greedy", xlabel="step")
    bleu.legend()
    return figure
