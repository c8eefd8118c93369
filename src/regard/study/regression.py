"""`regard regression`: attention as kernel regression."""

import ast
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table
from torch import Tensor

from regard.attention import Gaussian
from regard.config import choose
from regard.mask import Mask, allow
from regard.plot.style import in_style, new_figure
from regard.shapes import Float
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
    y_test: Float[Tensor, " Q"] | None  # the curve without noise, where it is known
    average: Pooling
    fixed: Pooling
    learned: Pooling
    w: float
    losses: list[float]
    weights_before: Float[Tensor, "Q K"]
    weights_after: Float[Tensor, "Q K"]
    source: str = "2*sin(x) + x**0.8"  # the formula, or where the points come from


def truth(x: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return the curve without noise, `2 sin x + x^0.8`; x must not be negative, where the power is not real."""
    return 2 * torch.sin(x) + x**0.8


@dataclass(frozen=True)
class Curve:
    """A function of x on a range, and what it is called."""

    name: str = "2*sin(x) + x**0.8"
    of: Callable[[Float[Tensor, " N"]], Float[Tensor, " N"]] = truth
    low: float = 0.0
    high: float = 5.0


@dataclass(frozen=True)
class FitSettings:
    """How w is learned; the textbook's loss is the sum over all points, and its rate is for that."""

    optimiser: type[torch.optim.Optimizer] = torch.optim.Adam
    lr: float = 0.05
    steps: int = 200
    loss: str = "mean"


FITS = {"adam": FitSettings(), "textbook": FitSettings(torch.optim.SGD, 0.5, 5, "sum")}


def run_regression(
    n_train: int = 50,
    n_test: int = 100,
    noise: float = 0.5,
    steps: int | None = None,
    seed: int = 0,
    fit: str = "adam",
    curve: Curve = Curve(),
) -> RegressionStudy:
    """Draw points of a curve with noise, and predict it with average, fixed and learned pooling."""
    fitting = choose(FITS, fit, "fit")
    steps = fitting.steps if steps is None else steps
    if n_train < 2 or n_test < 1:
        raise ValueError(f"n_train must be 2 or more and n_test 1 or more, got {n_train} and {n_test}")
    if not 0 <= noise < math.inf or steps < 1:
        raise ValueError(f"noise must be 0 or more and steps 1 or more, got {noise} and {steps}")
    generator, wide = torch.Generator().manual_seed(seed), curve.high - curve.low
    # Uniform in [0, 5): a normal sample would have negative x, whose power 0.8 is NaN.
    x = (torch.rand(n_train, generator=generator, dtype=torch.float64) * wide).sort().values + curve.low
    y = curve.of(x) + noise * torch.randn(n_train, generator=generator, dtype=torch.float64)
    x_test = torch.arange(n_test, dtype=torch.float64) * (wide / n_test) + curve.low
    y_test = curve.of(x_test)
    if not (y.isfinite().all() and y_test.isfinite().all()):
        raise ValueError(f"{curve.name} must be finite from {curve.low:g} to {curve.high:g}: choose another range")
    return compare_poolings(x, y, x_test, y_test, replace(fitting, steps=steps), seed, curve.name)


def run_on_points(
    points: Float[Tensor, "K 2"], source: str, n_test: int = 100, steps: int | None = None, fit: str = "adam"
) -> RegressionStudy:
    """Predict a user's own points (x, y); errors are those of each point predicted from all the others."""
    fitting = choose(FITS, fit, "fit")
    steps = fitting.steps if steps is None else steps
    if len(points) < 3 or not points.isfinite().all() or steps < 1:
        raise ValueError(
            f"{source}: there must be 3 or more points, all finite, and 1 or more steps, got {len(points)} and {steps}"
        )
    x, y = points[points[:, 0].argsort(stable=True)].double().unbind(dim=1)
    x_test = torch.linspace(float(x[0]), float(x[-1]), n_test, dtype=torch.float64)
    return compare_poolings(x, y, x_test, None, replace(fitting, steps=steps), 0, source)


def compare_poolings(
    x: Float[Tensor, " K"],
    y: Float[Tensor, " K"],
    x_test: Float[Tensor, " Q"],
    y_test: Float[Tensor, " Q"] | None,
    fitting: FitSettings,
    seed: int,
    source: str,
) -> RegressionStudy:
    """Predict with average, fixed and learned pooling; without a truth the error is that on left-out points."""
    fixed, learned = Gaussian(bandwidth="fixed").double(), Gaussian(bandwidth="learned").double()
    losses = fit_width(learned, x, y, fitting)
    others = allow(~torch.eye(len(x), dtype=torch.bool))

    def pooling(kernel: Gaussian | None) -> Pooling:
        with torch.no_grad():
            prediction = y.mean().expand(len(x_test)) if kernel is None else pool(kernel, x_test, x, y)
            if y_test is not None:
                return Pooling(prediction, float((prediction - y_test).square().mean()))
            left_out = (y.sum() - y) / (len(y) - 1) if kernel is None else pool(kernel, x, x, y, others)
            return Pooling(prediction, float((left_out - y).square().mean()))

    return RegressionStudy(
        seed=seed,
        x=x,
        y=y,
        x_test=x_test,
        y_test=y_test,
        average=pooling(None),
        fixed=pooling(fixed),
        learned=pooling(learned),
        w=float(learned.w.detach()),
        losses=losses,
        weights_before=attention_weights(fixed, x_test, x),
        weights_after=attention_weights(learned, x_test, x),
        source=source,
    )


def fit_width(attention: Gaussian, x: Float[Tensor, " K"], y: Float[Tensor, " K"], fitting: FitSettings) -> list[float]:
    """Learn w by gradient descent on the squared error, each point predicted from all the others."""
    others = allow(~torch.eye(len(x), dtype=torch.bool))
    optimiser = fitting.optimiser(attention.parameters(), lr=fitting.lr)  # pyright: ignore[reportCallIssue]
    losses = []
    for _ in range(fitting.steps):
        errors = (pool(attention, x, x, y, others) - y).square()
        optimiser.zero_grad()
        (errors.sum() if fitting.loss == "sum" else errors.mean()).backward()
        optimiser.step()
        losses.append(errors.mean().item())
    return losses


FUNCTIONS = {name: getattr(torch, name) for name in ("sin", "cos", "tan", "tanh", "exp", "log", "sqrt", "abs")}
NAMES = {"pi": math.pi, "e": math.e}
OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
LONGEST_FORMULA = 200


def read_formula(text: str, low: float, high: float) -> Curve:
    """Read a formula of x such as `2*sin(x) + x**0.8`; nothing but arithmetic and the functions listed is evaluated."""
    if not low < high or not math.isfinite(high - low):
        raise ValueError(f"a range must go from a lower to a higher number, got {low} and {high}")
    if len(text) > LONGEST_FORMULA:
        raise ValueError(f"a formula must have at most {LONGEST_FORMULA} characters, got {len(text)}")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"a formula must look like 2*sin(x) + x**0.8, got {text!r}") from error

    def of(x: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        return _evaluate(tree, x, text)

    of(torch.zeros(1, dtype=torch.float64))
    return Curve(text, of, low, high)


def _evaluate(node: ast.expr, x: Tensor, text: str) -> Tensor:
    """Evaluate a formula with tensors of float64 all along, so that no number can grow without bound."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool) and abs(number) < 1e300:
            return torch.full_like(x, number)
        case ast.Name(id="x"):
            return x
        case ast.Name(id=name) if name in NAMES:
            return torch.full_like(x, NAMES[name])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_evaluate(left, x, text), _evaluate(right, x, text))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_evaluate(operand, x, text))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](_evaluate(argument, x, text))
    valid = f"x, numbers, {', '.join(NAMES)}, + - * / **, {', '.join(FUNCTIONS)}"
    raise ValueError(f"a formula may hold {valid}, got {ast.unparse(node)!r} in {text!r}")


def read_points(path: Path) -> Float[Tensor, "K 2"]:
    """Read points from a file with x and y on each line, by commas, tabs or spaces; a line of names may come first."""
    points = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        cells = line.replace(",", " ").replace(";", " ").split()
        try:
            x, y = map(float, cells)
        except ValueError as error:
            if not cells or number == 1:
                continue
            raise ValueError(f"{path}, line {number}: a point must be two numbers x and y, got {line!r}") from error
        points.append((x, y))
    return torch.tensor(points, dtype=torch.float64).reshape(-1, 2)


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


@in_style
def draw_regression(result: RegressionStudy) -> "Figure":
    """Draw the three fits, the loss curve, and the weights before and after learning."""
    from regard.plot.heatmap import draw_weights

    figure = new_figure(figsize=(10, 6.4))
    fits, loss, before, after = figure.subplots(2, 2, width_ratios=[1.6, 1]).flatten()
    x = result.x_test.numpy()
    fits.plot(result.x.numpy(), result.y.numpy(), "o", color="black", alpha=0.35, markersize=4, label="training points")
    if result.y_test is not None:
        fits.plot(x, result.y_test.numpy(), color="black", linewidth=1, label=f"truth: {result.source}")
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
    drawn = f", seed {result.seed}" if result.y_test is not None else ""
    table = Table(title=f"Kernel regression, {len(result.x)} points of {result.source}{drawn}", **QUIET)
    error = "mean squared error" if result.y_test is not None else "mean squared error on left-out points"
    for column in ("pooling", "w", error):
        table.add_column(column, justify="left" if column == "pooling" else "right")
    table.add_row("average of all points", "–", f"{result.average.error:.4f}")
    table.add_row("Gaussian kernel, fixed", "1.00", f"{result.fixed.error:.4f}")
    table.add_row("Gaussian kernel, learned", f"{result.w:.2f}", f"{result.learned.error:.4f}")
    return table
