"""Angles between words and positions, and the features that carry position, as a figure."""

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.study.angles import Comparison
from regard.study.subspaces import StackSubspaces, SubspaceStudy


@in_style
def draw_subspaces(study: SubspaceStudy) -> Figure:
    """Draws for the encoder angles and shares by feature, and for both stacks the map of all layers."""
    figure = Drawing(figsize=(11, 6.4))
    (angles, features), (encoder, decoder) = figure.subplots(2, 2)
    first = study.stacks[0]
    if first.table is None:
        found = [(point.point, point.comparison) for point in first.points]
        _draw_angles(angles, found, f"means of words and places, encoder ({study.scheme}: no codes)")
    else:
        found = [(each.name, each) for each in first.table.comparisons]
        _draw_angles(angles, found, f"words and {study.scheme} codes of {study.model}")
    _draw_features(features, first)
    for axes, stack in ((encoder, first), (decoder, study.stacks[1])):
        _draw_map(axes, stack)
    return figure


def _draw_angles(axes: Axes, comparisons: list[tuple[str, Comparison]], title: str) -> None:
    """Draws angles from the smallest on, over the mean and three deviations of random subspaces."""
    for name, each in comparisons:
        at = torch.linspace(0, 1, len(each.angles)) if len(each.angles) > 1 else torch.zeros(1)
        (line,) = axes.plot(at, each.angles, ".-", markersize=3, label=f"{name}: {each.dims[0]} and {each.dims[1]}")
        low, high = (each.random_angles + sign * 3 * each.random_spread for sign in (-1, 1))
        axes.fill_between(at, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.axhline(90, color="0.7", linewidth=0.8)
    axes.set(title=title, xlabel="angles from the smallest to the largest; bands: random subspaces", ylabel="degrees")
    axes.legend(fontsize="small")


def _draw_features(axes: Axes, stack: StackSubspaces) -> None:
    for point in dict.fromkeys((stack.points[0], stack.points[-1])):
        axes.plot(point.shares, linewidth=0.8, label=point.point)
    axes.set(title=f"{stack.stack}: share of a feature's variance by position", xlabel="feature")
    axes.legend(fontsize="small")


def _draw_map(axes: Axes, stack: StackSubspaces) -> None:
    """Draws a row for each point, features in the order of what position explains of them where the stream begins."""
    shares = sorted_shares(stack)
    image = axes.imshow(shares.numpy(), cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(stack.points)), [point.point for point in stack.points])
    axes.set(title=f"{stack.stack}: share by position at each layer", xlabel="features, sorted at the embedding")
    bar = axes.get_figure().colorbar(image, ax=axes, fraction=0.05)  # pyright: ignore[reportOptionalMemberAccess]
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def sorted_shares(stack: StackSubspaces) -> Float[Tensor, "points D"]:
    """Gives all points' shares, features that tell position best at the first point to the left."""
    order = stack.points[0].shares.argsort(descending=True)
    return torch.stack([point.shares for point in stack.points])[:, order]
