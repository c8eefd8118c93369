"""Position schemes as figures: the map of codes and the profile of their products."""

import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.study.positions import PositionReport


@in_style
def draw_positions(reports: list[PositionReport]) -> Figure:
    """Draws one scheme in detail, or several in rows to compare."""
    if len(reports) == 1:
        return _draw_one(reports[0])
    figure = Drawing(figsize=(10, 1.9 * len(reports)))
    for row, report in zip(figure.subplots(len(reports), 3, width_ratios=[1.2, 1.2, 1]), reports, strict=True):
        _draw_views(row[0], row[1], row[2], report)
    return figure


def _draw_one(report: PositionReport) -> Figure:
    figure = Drawing(figsize=(11, 6.4))
    whole, split, profile, products, signs, counter = figure.subplots(2, 3).flatten()
    _draw_views(whole, split, profile, report)
    gram = report.codes @ report.codes.T
    products.imshow(gram.numpy(), cmap="viridis", aspect="auto", interpolation="nearest")
    products.set(title="products of codes, PE(p)·PE(q)", xlabel="q", ylabel="p")
    n = min(len(report.codes), 64)
    signs.imshow((report.codes[:n, ::2] < 0).numpy(), cmap="Greys", aspect="auto", interpolation="nearest")
    signs.set(title="signs of every second feature", xlabel="pair of features", ylabel="position")
    counter.imshow(bits(n).numpy(), cmap="Greys", aspect="auto", interpolation="nearest")
    counter.set(title="a binary counter", xlabel="bit", ylabel="number")
    return figure


def halves(codes: Float[Tensor, "N W"]) -> Float[Tensor, "N W"]:
    """Puts all sines to the left and all cosines to the right (S6.7)."""
    return torch.cat([codes[:, ::2], codes[:, 1::2]], dim=1)


def bits(n: int) -> Int[Tensor, "N bits"]:
    """Gives the binary digits of 0 … n − 1, lowest first, as the sines run from fast to slow."""
    return torch.arange(n)[:, None] >> torch.arange(max(1, (n - 1).bit_length())) & 1


def _draw_views(whole: Axes, split: Axes, profile: Axes, report: PositionReport) -> None:
    """Draws the codes as they are, the codes by halves, and the profile (S6.7)."""
    _draw_codes(
        whole, report.codes, f"{report.name}: " + ("added at each distance" if report.door == "bias" else "codes")
    )
    _draw_codes(
        split, halves(report.codes), "even | odd features" if report.waves is None else "sine half | cosine half"
    )
    for axes in (whole, split):
        axes.set(xlabel="feature", ylabel="distance" if report.door == "bias" else "position")
    _draw_profile(profile, report)


def _draw_codes(axes: Axes, codes: Tensor, title: str) -> None:
    top = float(codes.abs().max()) or 1.0
    image = axes.imshow(codes.numpy(), cmap="RdBu", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
    axes.set_title(title)
    bar = axes.get_figure().colorbar(image, ax=axes, fraction=0.05)  # pyright: ignore[reportOptionalMemberAccess]
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def _draw_profile(axes: Axes, report: PositionReport) -> None:
    axes.plot(report.profile.numpy())
    what = "what is added to the score" if report.door == "bias" else "PE(p)·PE(p + k)"
    axes.set(title=what, xlabel="distance k")
