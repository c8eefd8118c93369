"""`regard study subspaces`: do tokens and positions use nearly orthogonal subspaces?"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from rich.table import Table
from torch import Tensor

from regard.model.layers import Embedding
from regard.padding import EOS
from regard.pipeline.translator import Translator
from regard.plot.style import in_style, new_figure
from regard.shapes import Float
from regard.study.position_probe import is_word
from regard.study.repeats import MeanStd, mean_std
from regard.study.sequences import encode_pairs
from regard.study.stream_parts import (
    code_vectors,
    corrected,
    explained,
    group_means,
    joint_means,
    pooled,
    scheme_of,
    word_vectors,
)
from regard.study.timing import one_thread
from regard.terminal import QUIET
from regard.trace.head_ablation import ProgressBar, no_progress
from regard.trace.residual import Stream, plain_transformer, record_streams

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class SubspaceAngles:
    """Two subspaces of one space: the angles between them in degrees, smallest first, and those of random ones.

    `overlap` is the mean of cos², the share of the smaller subspace that lies in the larger: 0 where they are
    orthogonal, 1 where one contains the other, and k/D on average where one of k dimensions is random.
    """

    name: str
    dims: tuple[int, int]
    width: int
    angles: Float[Tensor, " n"]
    overlap: float
    random_angles: Float[Tensor, " n"]  # means of the draws
    random_std: Float[Tensor, " n"] = field(metadata={"json": "random_spread"})
    random_overlap: MeanStd


def leading(x: Float[Tensor, "N D"], share: float | None = None, top: int | None = None) -> Float[Tensor, "D k"]:
    """Return the directions of largest variance: `top` of them, or the fewest that hold a share of the variance."""
    x = x.double() - x.double().mean(0)
    values, vectors = torch.linalg.eigh(x.T @ x)
    values, vectors = values.flip(0).clamp(min=0.0), vectors.flip(1)
    rank = int((values > values[0] * 1e-10).sum()) if values[0] > 0 else 0
    if rank == 0:
        raise ValueError("rows that are all alike span no subspace, got no variance")
    if top is not None:
        return vectors[:, : min(top, rank)]
    if share is None or not 0 < share <= 1:
        raise ValueError(f"a share of the variance must lie in (0, 1], got {share}")
    held = values[:rank].cumsum(0) / values[:rank].sum()
    return vectors[:, : min(rank, int((held < share - 1e-12).sum()) + 1)]


def principal_angles(a: Float[Tensor, "D k"], b: Float[Tensor, "D m"]) -> Float[Tensor, " n"]:
    """Return the angles between two subspaces with orthonormal bases, in degrees, smallest first.

    Cosines are singular values of aᵀb; small angles are more accurate by their sines (Björck and Golub 1973).
    """
    a, b = (a, b) if a.shape[1] >= b.shape[1] else (b, a)
    across = a.T @ b
    cosines = torch.linalg.svdvals(across).clamp(max=1.0)
    sines = torch.linalg.svdvals(b - a @ across).flip(0).clamp(max=1.0)
    return torch.rad2deg(torch.where(cosines.square() > 0.5, sines.asin(), cosines.acos()))


def overlap(angles: Float[Tensor, " n"]) -> float:
    """Return the mean of cos²."""
    return float(torch.deg2rad(angles).cos().square().mean())


def random_basis(width: int, k: int, generator: torch.Generator) -> Float[Tensor, "D k"]:
    """Draw a uniformly random subspace."""
    return torch.linalg.qr(torch.randn(width, k, generator=generator, dtype=torch.float64))[0]


def compare(
    name: str, a: Float[Tensor, "D k"], b: Float[Tensor, "D m"], draws: int, generator: torch.Generator
) -> SubspaceAngles:
    """Measure the angles, and those between the first subspace and random ones of the second's dimensions."""
    width, dims = len(a), (a.shape[1], b.shape[1])
    angles = principal_angles(a, b)
    drawn = torch.stack([principal_angles(a, random_basis(width, dims[1], generator)) for _ in range(draws)])
    random_overlap = mean_std([overlap(each) for each in drawn])
    return SubspaceAngles(name, dims, width, angles, overlap(angles), drawn.mean(0), drawn.std(0), random_overlap)


LEAST_PAIRS = 16
MAX_POSITIONS = 512  # whose codes are compared with words


@dataclass(frozen=True)
class SubspaceSettings:
    """Which subspaces are compared: those with a share of the variance, and those of fixed dimensions."""

    share: float = 0.9
    tops: tuple[int, ...] = (4, 16, 64)
    draws: int = 200  # of random subspaces
    seed: int = 0


SETTINGS = SubspaceSettings()
QUICK = SubspaceSettings(draws=20)


@dataclass(frozen=True, eq=False)
class WordTable:
    """The vectors of tokens and the codes of positions, before the first layer."""

    n_words: int
    n_positions: int = field(metadata={"json": "n_places"})
    comparisons: list[SubspaceAngles]
    cosine: float  # root mean square of the cosines between centred words and centred codes
    random_cosine: float  # that of random vectors, 1/√D


@dataclass(frozen=True, eq=False)
class StreamPoint:
    """The stream at one point: the share of each feature's variance that position explains, corrected for chance.

    `total` is the share of the whole variance, `beyond_words` the same after subtracting the means of words: a full
    stop comes late, so words predict positions. The comparison is between the words' and the positions' components of a
    common fit, each free of the other.
    """

    point: str
    shares: Float[Tensor, " D"]
    total: float
    beyond_words: float
    comparison: SubspaceAngles


@dataclass(frozen=True, eq=False)
class StackSubspaces:
    """One stack; `table` is None where the position encoding adds nothing to the stream."""

    stack: str
    table: WordTable | None
    points: list[StreamPoint]


@dataclass(frozen=True, eq=False)
class SubspaceStudy:
    """Both stacks of a model."""

    model: str
    scheme: str
    n_pairs: int
    n_unread: int
    settings: SubspaceSettings
    stacks: list[StackSubspaces]


@one_thread()
def run(
    name: str,
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    settings: SubspaceSettings,
    bar: ProgressBar = no_progress,
) -> SubspaceStudy:
    """Compare tokens with codes in a model's tables, and tokens with positions in its stream."""
    text = encode_pairs(translator, pairs, LEAST_PAIRS)
    streams, plain = record_streams(translator.model, text.src, text.tgt, bar), plain_transformer(translator.model)
    embeddings, n_positions = {"encoder": plain.src, "decoder": plain.tgt}, min(translator.max_len, MAX_POSITIONS)
    stacks = []
    for stack, stream in bar(list(streams.items()), len(streams), "comparing"):
        generator = torch.Generator().manual_seed(settings.seed)
        table = compare_tables(embeddings[stack], n_positions, settings, generator)
        stacks.append(StackSubspaces(stack, table, compare_stream(stream, settings, generator)))
    return SubspaceStudy(name, scheme_of(plain), len(text.src), text.n_unread, settings, stacks)


def compare_tables(
    embedding: Embedding, n_positions: int, settings: SubspaceSettings, generator: torch.Generator
) -> WordTable | None:
    """Compare all tokens but the special ones with the codes of the first positions; None where there are no codes."""
    codes = code_vectors(embedding, torch.arange(n_positions))
    if codes is None:
        return None
    words = word_vectors(embedding, torch.arange(EOS + 1, embedding.table.weight.shape[0]))
    sizes: list[tuple[str, float | None, int | None]] = [(f"{settings.share:.0%}", settings.share, None)]
    sizes += [(f"top {top}", None, top) for top in settings.tops if top < words.shape[1]]
    comparisons = [
        compare(name, leading(words, share, top), leading(codes, share, top), settings.draws, generator)
        for name, share, top in sizes
    ]
    return WordTable(len(words), n_positions, comparisons, cosine(words, codes), words.shape[1] ** -0.5)


def cosine(words: Float[Tensor, "N D"], codes: Float[Tensor, "P D"]) -> float:
    """Return the root mean square of the cosines between rows, each side centred."""
    one, other = (torch.nn.functional.normalize(x.double() - x.double().mean(0), dim=1) for x in (words, codes))
    return float((one @ other.T).square().mean().sqrt())


def compare_stream(stream: Stream, settings: SubspaceSettings, generator: torch.Generator) -> list[StreamPoint]:
    """Measure at each point which features carry position, and the angles between the means of words and positions."""
    words = is_word(stream.tokens)
    positions, ids = pooled(stream.tokens.positions[words]), pooled(stream.tokens.ids[words])
    n_positions, n_ids = int(positions.max()) + 1, int(ids.max()) + 1
    if min(n_positions, n_ids) < 3:
        raise ValueError(f"the text must have 3 positions and 3 words that occur often, got {n_positions} and {n_ids}")
    points = []
    for point, x in stream.points().items():
        x = x[words].double()
        shares, variance = corrected(explained(x, positions), len(x), n_positions), x.var(0, correction=0)
        left = x - group_means(x, ids)[ids]
        beyond = corrected(explained(left, positions), len(x), n_positions) * left.var(0, correction=0)
        total, beyond_words = (float(each.sum() / variance.sum()) for each in (shares * variance, beyond))
        of_words, of_positions = (leading(means, settings.share) for means in joint_means(x, ids, positions))
        angles = compare("words and places in the stream", of_words, of_positions, settings.draws, generator)
        points.append(StreamPoint(point, shares, total, beyond_words, angles))
    return points


@in_style
def figure(study: SubspaceStudy) -> "Figure":
    """Draw for the encoder angles and shares by feature, and for both stacks the map of all layers."""
    drawing = new_figure(figsize=(11, 6.4))
    (angles, features), (encoder, decoder) = drawing.subplots(2, 2)
    first = study.stacks[0]
    if first.table is None:
        compared = [(point.point, point.comparison) for point in first.points]
        _draw_angles(angles, compared, f"means of words and positions, encoder ({study.scheme}: no codes)")
    else:
        compared = [(each.name, each) for each in first.table.comparisons]
        _draw_angles(angles, compared, f"words and {study.scheme} codes of {study.model}")
    _draw_features(features, first)
    for axes, stack in ((encoder, first), (decoder, study.stacks[1])):
        _draw_map(axes, stack)
    return drawing


def _draw_angles(axes: "Axes", comparisons: list[tuple[str, SubspaceAngles]], title: str) -> None:
    """Draw angles from the smallest on, over the mean and three deviations of random subspaces."""
    for name, each in comparisons:
        at = torch.linspace(0, 1, len(each.angles)) if len(each.angles) > 1 else torch.zeros(1)
        (line,) = axes.plot(at, each.angles, ".-", markersize=3, label=f"{name}: {each.dims[0]} and {each.dims[1]}")
        low, high = (each.random_angles + sign * 3 * each.random_std for sign in (-1, 1))
        axes.fill_between(at, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.axhline(90, color="0.7", linewidth=0.8)
    axes.set(title=title, xlabel="angles from the smallest to the largest; bands: random subspaces", ylabel="degrees")
    axes.legend(fontsize="small")


def _draw_features(axes: "Axes", stack: StackSubspaces) -> None:
    for point in dict.fromkeys((stack.points[0], stack.points[-1])):
        axes.plot(point.shares, linewidth=0.8, label=point.point)
    axes.set(title=f"{stack.stack}: share of a feature's variance by position", xlabel="feature")
    axes.legend(fontsize="small")


def _draw_map(axes: "Axes", stack: StackSubspaces) -> None:
    """Draw a row for each point, features sorted by what position explains of them at the embedding."""
    shares = sorted_shares(stack)
    image = axes.imshow(shares.numpy(), cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(stack.points)), [point.point for point in stack.points])
    axes.set(title=f"{stack.stack}: share by position at each layer", xlabel="features, sorted at the embedding")
    bar = axes.get_figure().colorbar(image, ax=axes, fraction=0.05)  # pyright: ignore[reportOptionalMemberAccess]
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def sorted_shares(stack: StackSubspaces) -> Float[Tensor, "points D"]:
    """Return all points' shares, features with the largest at the first point to the left."""
    order = stack.points[0].shares.argsort(descending=True)
    return torch.stack([point.shares for point in stack.points])[:, order]


CAPTION = (
    "dims: of the words' and of the positions' subspace; angles in degrees, each followed by that of random subspaces; "
    "overlap: mean of cos², 0 orthogonal, 1 one inside the other."
)
POINT_CAPTION = (
    "position: share of the variance that position explains, corrected for chance; beyond words: the same after "
    "subtracting the means of words; features: how many hold half of the first; overlap: of the words' and the "
    "positions' components in a common fit, followed by that of random subspaces."
)
COLUMNS = ("stack", "size", "dims", "smallest", "random", "mean", "random", "overlap", "random")


def tables(study: SubspaceStudy) -> dict[str, Table]:
    """Return the angles, where the encoding has codes, and what position explains of the stream."""
    angles = {"angles": angles_table(study)} if distinct_tables(study) else {}
    return {**angles, "stream": stream_table(study)}


def angles_table(study: SubspaceStudy) -> Table:
    """List the angles between words and codes before the first layer."""
    table = Table(title=f"Words and codes of {study.model}, {study.scheme} positions", caption=CAPTION, **QUIET)
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number < 2 else "right")
    for name, words in distinct_tables(study).items():
        for each in words.comparisons:
            table.add_row(name, each.name, *comparison_cells(each))
    return table


def distinct_tables(study: SubspaceStudy) -> dict[str, WordTable]:
    """Return the tables by stack; stacks that share words and codes have one."""
    named = {stack.stack: stack.table for stack in study.stacks if stack.table is not None}
    angles = [each.comparisons[0].angles for each in named.values()]
    if len(angles) == 2 and torch.equal(*angles):
        return {"both": next(iter(named.values()))}
    return named


def stream_table(study: SubspaceStudy) -> Table:
    """List what position explains at each point of the stream, and by how many features."""
    title = f"Position in the stream of {study.model}, {study.n_pairs} pairs"
    no_codes = "" if distinct_tables(study) else f" {study.scheme} adds no codes to the stream."
    table = Table(title=title, caption=POINT_CAPTION + no_codes, **QUIET)
    columns = ("stack", "where", "position", "beyond\nwords", "features", "largest", "dims", "overlap", "random")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right")
    for stack in study.stacks:
        for point in stack.points:
            each, n = point.comparison, n_carrying(point.shares)
            explained = f"{point.total:.1%}", f"{point.beyond_words:.1%}"
            features = str(n), f"{float(point.shares.max()):.0%}"
            dims = f"{each.dims[0]}, {each.dims[1]}"
            table.add_row(stack.stack, point.point, *explained, *features, dims, *_overlaps(each))
    return table


def n_carrying(shares: Float[Tensor, " D"]) -> int:
    """Count the features, strongest first, that hold half of what position explains."""
    strongest = shares.clamp(min=0.0).sort(descending=True).values
    return int((strongest.cumsum(0) < strongest.sum() / 2).sum()) + 1


def comparison_cells(each: SubspaceAngles) -> list[str]:
    """Return one comparison as it is printed."""
    smallest = f"{float(each.angles[0]):.1f}°", f"{float(each.random_angles[0]):.1f}°"
    mean = f"{float(each.angles.mean()):.1f}°", f"{float(each.random_angles.mean()):.1f}°"
    return [f"{each.dims[0]}, {each.dims[1]}", *smallest, *mean, *_overlaps(each)]


def _overlaps(each: SubspaceAngles) -> tuple[str, str]:
    return f"{each.overlap:.3f}", f"{each.random_overlap.mean:.3f}"
