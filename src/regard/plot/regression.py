"""The kernel regression experiment as a figure."""

from matplotlib.figure import Figure

from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.plot.heatmap import draw_weights
from regard.study.regression import Regression


@in_style
def draw_regression(result: Regression) -> Figure:
    """Draws the three fits, the loss curve, and the weights before and after learning."""
    figure = Drawing(figsize=(10, 6.4))
    fits, loss, before, after = figure.subplots(2, 2, width_ratios=[1.6, 1]).flatten()
    x = result.x_test.numpy()
    fits.plot(result.x.numpy(), result.y.numpy(), "o", color="black", alpha=0.35, markersize=4, label="training points")
    fits.plot(x, result.y_test.numpy(), color="black", linewidth=1, label="truth: 2 sin x + x^0.8")
    for name, curve in (("average", result.average), ("Gaussian, w = 1", result.fixed)):
        fits.plot(x, curve.prediction.numpy(), label=f"{name}: error {curve.error:.3f}")
    learned = result.learned
    fits.plot(x, learned.prediction.numpy(), label=f"Gaussian, w = {result.w:.2f} learned: error {learned.error:.3f}")
    fits.set(title="Three ways to pool the same points", xlabel="x", ylabel="y")
    fits.legend(fontsize="small", loc="lower center")
    loss.plot(result.losses)
    loss.set(title="Learning w, each point from all the others", xlabel="step", ylabel="mean squared error")
    for axes, weights, title in (
        (before, result.weights_before, "Weights with w = 1"),
        (after, result.weights_after, f"Weights with w = {result.w:.2f}"),
    ):
        draw_weights(axes, weights)
        axes.set(title=title, xlabel="training point, by x", ylabel="test point, by x")
    return figure
