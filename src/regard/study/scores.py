"""`regard scores`: the scores of the table on the same queries and keys, and why the dot product is scaled."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from rich.table import Table
from torch import Tensor

from regard.attention import ATTENTION, Dot, ScaledDot
from regard.build import build_part
from regard.config import PartSettings
from regard.plot.style import in_style, new_figure
from regard.shapes import Float
from regard.terminal import QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ScoreReport:
    """One score on the shared queries and keys."""

    name: str
    mean: float
    std: float
    entropy: float  # of a row of weights, relative to that of equal weights: 1 is uniform, 0 a single key
    largest: float  # weight in a row, on average
    weights: Float[Tensor, "Q K"]


@dataclass(frozen=True)
class Variance:
    """The dot product of unit-variance vectors of one width."""

    width: int
    dot: float  # variance of qᵀk: the theory says the width
    scaled: float  # variance of qᵀk / √width: the theory says 1
    largest_dot: float  # largest weight of a row of softmax(qᵀk), on average
    largest_scaled: float
    slope_dot: float  # mean of α(1 − α), the part of a gradient that passes the softmax
    slope_scaled: float


@dataclass(frozen=True)
class ScoresStudy:
    """Both experiments."""

    seed: int
    width: int
    queries: list[str]
    keys: list[str]
    scores: list[ScoreReport]
    variances: list[Variance]


def run_scores(queries: list[str], keys: list[str], width: int = 64, seed: int = 0) -> ScoresStudy:
    """Score random unit-variance vectors, one for each word, with every entry of the table."""
    if width < 1:
        raise ValueError(f"width must be 1 or more, got {width}")
    if not queries or len(keys) < 2:
        raise ValueError(f"there must be 1 or more queries and 2 or more keys, got {len(queries)} and {len(keys)}")
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(1, 1, len(words), width, generator=generator, dtype=torch.float64) for words in (queries, keys))
    reports = [report_score(name, q, k, seed) for name in ATTENTION]
    variances = [measure_variance(2**power, generator) for power in range(1, 11)]
    return ScoresStudy(seed, width, queries, keys, reports, variances)


def report_score(name: str, q: Float[Tensor, "1 1 Q E"], k: Float[Tensor, "1 1 K E"], seed: int) -> ScoreReport:
    """Describe the scores and the weights of one attention with random parameters."""
    sizes = {"n_heads": 1, "d_query": q.shape[-1], "d_key": k.shape[-1]}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        attention = build_part(ATTENTION, PartSettings(name), "attention", sizes).double()
        scores, weights = attention.scores(q, k)[0, 0], attention.weights(q, k)[0, 0]
    entropy = torch.special.entr(weights).sum(dim=-1).mean() / torch.tensor(float(k.shape[2])).log()
    return ScoreReport(
        name, float(scores.mean()), float(scores.std()), float(entropy), float(weights.amax(dim=-1).mean()), weights
    )


def measure_variance(width: int, generator: torch.Generator, n: int = 128, repeats: int = 8) -> Variance:
    """Measure `repeats · n²` dot products of width `width`."""
    q, k = (torch.randn(repeats, 1, n, width, generator=generator, dtype=torch.float64) for _ in range(2))
    rows = []
    for attention in (Dot(), ScaledDot()):
        weights = attention.weights(q, k)
        slope = (weights * (1 - weights)).mean()
        rows.append((attention.scores(q, k).var(), weights.amax(dim=-1).mean(), slope))
    (dot, largest_dot, slope_dot), (scaled, largest_scaled, slope_scaled) = (map(float, row) for row in rows)
    return Variance(width, dot, scaled, largest_dot, largest_scaled, slope_dot, slope_scaled)


@in_style
def draw_scores(study: ScoresStudy) -> "Figure":
    """Draw each score's weights over the same words, and below them the effect of the width on dot products."""
    from regard.plot.heatmap import draw_weights

    figure = new_figure(figsize=(2.6 * len(study.scores), 6))
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.1, 1], squeeze=False)[:, 0]
    for axes, report in zip(top.subplots(1, len(study.scores), sharey=True), study.scores, strict=True):
        draw_weights(axes, report.weights, study.queries, study.keys, largest=1.0, numbers=True)
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


def _draw_widths(axes: "Axes", variances: list[Variance], dot: str, scaled: str, title: str) -> None:
    widths = [v.width for v in variances]
    axes.plot(widths, [getattr(v, dot) for v in variances], "o-", markersize=3, label="qᵀk")
    axes.plot(widths, [getattr(v, scaled) for v in variances], "o-", markersize=3, label="qᵀk / √width")
    axes.set_xscale("log", base=2)
    axes.set(title=title, xlabel="width")


def scores_table(study: ScoresStudy) -> Table:
    """List the statistics of each score on the same vectors."""
    title = f"The same {len(study.queries)} queries and {len(study.keys)} keys, width {study.width}, seed {study.seed}"
    table = Table(title=title, **QUIET)
    for column in ("score", "mean", "std", "entropy of weights", "largest weight"):
        table.add_column(column, justify="left" if column == "score" else "right")
    for report in study.scores:
        numbers = (report.mean, report.std, report.entropy, report.largest)
        table.add_row(report.name, *(f"{number:.3f}" for number in numbers))
    return table


def variances_table(study: ScoresStudy) -> Table:
    """List the effect of the width on dot products of unit-variance vectors."""
    table = Table(title="Why √d: dot products of unit-variance vectors", **QUIET)
    for column in ("width", "variance of qᵀk", "… of qᵀk/√d", "largest weight", "… scaled", "α(1 − α)", "… scaled"):
        table.add_column(column, justify="right")
    for v in study.variances:
        weights = (f"{v.largest_dot:.3f}", f"{v.largest_scaled:.3f}", f"{v.slope_dot:.5f}", f"{v.slope_scaled:.5f}")
        table.add_row(str(v.width), f"{v.dot:.1f}", f"{v.scaled:.3f}", *weights)
    return table
