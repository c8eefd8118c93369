"""`regard regression`: attention as kernel regression."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from rich.table import Table
from torch import Tensor

from regard.attention import Gaussian
from regard.mask import Mask, allow
from regard.plot.style import in_style, new_figure
from regard.terminal import QUIET

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Pooling:
    """One way of pooling: its prediction at each test point, and its mean squared error there."""

    prediction: Float[Tensor, " Q"]
    error: float


@dataclass(frozen=True)
class RegressionStudy:
    """The data, the three poolings, and how the third was learned."""

    seed: int
    x: Float[Tensor, " K"]
    y: Float[Tensor, " K"]
    x_test: Float[Tensor, " Q"]
    y_test: Float[Tensor, " Q"]
    average: Pooling
    fixed: Pooling
    learned: Pooling
    w: float
    losses: list[float]
    weights_before: Float[Tensor, "Q K"]
    weights_after: Float[Tensor, "Q K"]


def truth(x: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return the curve without noise, `2 sin x + x^0.8`; x must not be negative, where the power is not real."""
    return 2 * torch.sin(x) + x**0.8


def run_regression(
    n_train: int = 50, n_test: int = 100, noise: float = 0.5, steps: int = 200, seed: int = 0
) -> RegressionStudy:
    """Draw the data, and predict with average, fixed and learned pooling."""
    if n_train < 2 or n_test < 1:
        raise ValueError(f"n_train must be 2 or more and n_test 1 or more, got {n_train} and {n_test}")
    if not 0 <= noise < math.inf or steps < 1:
        raise ValueError(f"noise must be 0 or more and steps 1 or more, got {noise} and {steps}")
    generator = torch.Generator().manual_seed(seed)
    # Uniform in [0, 5): a normal sample would have negative x, whose power 0.8 is NaN.
    x = (torch.rand(n_train, generator=generator, dtype=torch.float64) * 5).sort().values
    y = truth(x) + noise * torch.randn(n_train, generator=generator, dtype=torch.float64)
    x_test = torch.arange(n_test, dtype=torch.float64) * (5 / n_test)
    fixed, learned = Gaussian(bandwidth="fixed").double(), Gaussian(bandwidth="learned").double()
    losses = fit_width(learned, x, y, steps)
    return RegressionStudy(
        seed=seed,
        x=x,
        y=y,
        x_test=x_test,
        y_test=truth(x_test),
        average=_pooling(y.mean().expand(n_test), x_test),
        fixed=_pooling(pool(fixed, x_test, x, y), x_test),
        learned=_pooling(pool(learned, x_test, x, y), x_test),
        w=float(learned.w.detach()),
        losses=losses,
        weights_before=attention_weights(fixed, x_test, x),
        weights_after=attention_weights(learned, x_test, x),
    )


def fit_width(attention: Gaussian, x: Float[Tensor, " K"], y: Float[Tensor, " K"], steps: int) -> list[float]:
    """Learn w by gradient descent on the squared error, each point predicted from all the others."""
    others = allow(~torch.eye(len(x), dtype=torch.bool))
    optimiser = torch.optim.Adam(attention.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        loss = (pool(attention, x, x, y, others) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def pool(
    attention: Gaussian,
    queries: Float[Tensor, " Q"],
    x: Float[Tensor, " K"],
    y: Float[Tensor, " K"],
    mask: Mask = Mask(),
) -> Float[Tensor, " Q"]:
    """Predict `Σ α(q, x_i) y_i`: points are keys, their heights are values."""
    return attention(_one_head(queries), _one_head(x), _one_head(y), mask)[0, 0, :, 0]


def attention_weights(
    attention: Gaussian, queries: Float[Tensor, " Q"], x: Float[Tensor, " K"]
) -> Float[Tensor, "Q K"]:
    """Return the weight of every training point for every query."""
    with torch.no_grad():
        return attention.weights(_one_head(queries), _one_head(x))[0, 0]


def _one_head(x: Tensor) -> Tensor:
    return x[None, None, :, None]


def _pooling(prediction: Tensor, x_test: Tensor) -> Pooling:
    prediction = prediction.detach()
    return Pooling(prediction, float((prediction - truth(x_test)).square().mean()))


@in_style
def draw_regression(result: RegressionStudy) -> "Figure":
    """Draw the three fits, the loss curve, and the weights before and after learning."""
    from regard.plot.heatmap import draw_weights

    figure = new_figure(figsize=(10, 6.4))
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


def regression_table(result: RegressionStudy) -> Table:
    """List the three poolings and their errors."""
    table = Table(title=f"Kernel regression, {len(result.x)} points, seed {result.seed}", **QUIET)
    for column in ("pooling", "w", "mean squared error"):
        table.add_column(column, justify="left" if column == "pooling" else "right")
    table.add_row("average of all points", "–", f"{result.average.error:.4f}")
    table.add_row("Gaussian kernel, fixed", "1.00", f"{result.fixed.error:.4f}")
    table.add_row("Gaussian kernel, learned", f"{result.w:.2f}", f"{result.learned.error:.4f}")
    return table
