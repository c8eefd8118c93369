"""`regard positions`: what position encodings are like."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from rich.table import Table
from rich.text import Text
from torch import Tensor

from regard.build import build_part
from regard.config import PartSettings
from regard.plot.style import in_style, new_figure
from regard.position import POSITION, Position
from regard.position.absolute import shift_matrix
from regard.study import laws
from regard.study.laws import EncodingView, LawCheck, pairs_at, step_axis
from regard.terminal import QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

N_HEADS = 8
# Laws over pairs of positions look at no more than this: their cost grows with the square.
MAX_POSITIONS = 1024


@dataclass(frozen=True)
class Waves:
    """The periods of the rotating pairs of features, compared with the bits of a binary counter."""

    shortest: float
    longest: float
    geometric: float  # largest deviation of the ratio of neighbours from their common ratio; 0 is a perfect progression
    pairs_per_halving: float | None  # a binary counter has 1: each bit flips half as often as the one before


@dataclass(frozen=True)
class Cost:
    """Numbers of parameters: of the encoding itself, and of the attention layer above it."""

    scheme: int
    layer_added: int
    layer_concatenated: int | None  # None where there is no code to set beside the token's vector


@dataclass(frozen=True)
class PositionReport:
    """The properties of one encoding at one length and width."""

    name: str
    door: str
    unique: LawCheck
    bounded: LawCheck
    deterministic: LawCheck
    even_steps: LawCheck
    distance_only: LawCheck
    symmetric: LawCheck
    circles: LawCheck
    shift: LawCheck
    waves: Waves | None
    half_distance: int | None  # first distance at which the product is half of that at distance 0
    distinct_up_to: int | None  # all codes of positions 0 … this differ; None where codes end or depend on the text
    cost: Cost
    profile: Float[Tensor, " reach"]
    codes: Float[Tensor, "N W"]


def run_positions(
    names: list[str], length: int, width: int, base: float = 10000.0, far: int = 1_000_000
) -> Iterator[PositionReport]:
    """Examine the named encodings, or all, one after the other."""
    if length < 8 or width < 3:
        raise ValueError(f"length must be 8 or more and width 3 or more, got {length} and {width}")
    for name in names or POSITION:
        yield examine(name, length, width, base, far)


def examine(name: str, length: int, width: int, base: float, far: int) -> PositionReport:
    """Measure one encoding."""
    scheme, again = (make(name, length, width, base, seed) for seed in (0, 1))
    n = min(length, MAX_POSITIONS)
    whole, half = view(scheme, n, width), view(scheme, n // 2, width)
    matrix = shift_matrix(1, width, base) if name == "sinusoidal" and width % 2 == 0 else None
    even_steps = laws.even_steps(half, whole)
    curve = laws.profile(whole)
    reaches_far = whole.door in {"embed", "rotate"} and scheme.n_axes == 1 and even_steps.holds
    return PositionReport(
        name=name,
        door=whole.door,
        unique=laws.unique(whole),
        bounded=laws.bounded(half, whole),
        deterministic=laws.deterministic(whole, view(again, n, width)),
        even_steps=even_steps,
        distance_only=laws.distance_only(whole),
        symmetric=laws.symmetric(whole),
        circles=laws.on_circles(whole),
        shift=laws.shift(whole, 1, matrix),
        waves=describe_waves(whole),
        half_distance=_half_distance(curve),
        distinct_up_to=distinct_up_to(scheme, far, width) if reaches_far else None,
        cost=_cost(scheme, whole.door, width),
        profile=curve,
        codes=whole.codes,
    )


def make(name: str, length: int, width: int, base: float, seed: int) -> Position:
    """Build an encoding in float64 with tables just long enough."""
    sizes = {"width": width, "d_head": width, "n_heads": N_HEADS, "base": base, "max_len": length}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_part(POSITION, PartSettings(name), "position", sizes).double()


def view(scheme: Position, n: int, width: int) -> EncodingView:
    """Probe an encoding as a black box: does it embed, rotate or bias, and with which codes?"""
    positions = scheme.first_positions(n)
    axes = positions.reshape(n, -1)
    with torch.no_grad():
        codes = scheme.embed(torch.zeros(1, n, width, dtype=torch.float64), positions)[0]
        if codes.any():
            return EncodingView("embed", axes, codes, codes @ codes.T)
        ones = torch.full((1, N_HEADS, n, width), width**-0.5, dtype=torch.float64)
        rotated = scheme.rotate(ones, positions)[0, 0]
        if (rotated != ones[0, 0]).any():
            return EncodingView("rotate", axes, rotated, rotated @ rotated.T)
        bias = scheme.bias(ones, ones, positions, positions)
        if bias is not None:
            return EncodingView("bias", axes, _bias_codes(scheme, positions, width), bias[0].mean(dim=0))
    return EncodingView("none", axes, codes, codes @ codes.T)


def _bias_codes(scheme: Position, positions: Tensor, width: int) -> Tensor:
    """Return what each offset from position 0 adds: per head, or, where it depends on the query, per feature."""
    features = torch.eye(width, dtype=torch.float64).expand(1, N_HEADS, width, width)
    start = positions.new_zeros(1, width)
    bias = scheme.bias(features, features[:, :, :1].expand(-1, -1, positions.shape[1], -1), start, positions)
    assert bias is not None, "a scheme that opened its bias door has closed it again"
    by_head, by_feature = bias[0, :, 0].T, bias[0, 0].T
    return by_head if (bias == bias[:, :, :1]).all() else by_feature


def distinct_up_to(scheme: Position, far: int, width: int, chunk: int = 2**14) -> int | None:
    """Return the last position up to which all codes differ, `far` at most; None where the table ends before.

    Codes are projected on one random direction and sorted: codes with different projections differ, and the few with
    the same are compared themselves. Needs one number for each position instead of a code.
    """
    direction = torch.randn(width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    try:
        marks = torch.cat(
            [
                far_codes(scheme, start, min(start + chunk, far + 1), width) @ direction
                for start in range(0, far + 1, chunk)
            ]
        )
    except ValueError:
        return None
    order = marks.argsort(stable=True)  # equal marks stay in the order of their positions
    same = (marks[order[1:]] == marks[order[:-1]]).nonzero()[:, 0]
    pairs = [sorted((int(order[i]), int(order[i + 1]))) for i in same]
    twins = [b for a, b in pairs if far_codes(scheme, a, a + 1, width).equal(far_codes(scheme, b, b + 1, width))]
    return min(twins, default=far + 1) - 1


def far_codes(scheme: Position, start: int, stop: int, width: int) -> Float[Tensor, "N W"]:
    """Return the codes of consecutive positions, embedded or rotated."""
    positions = torch.arange(start, stop)[None]
    with torch.no_grad():
        codes = scheme.embed(torch.zeros(1, stop - start, width, dtype=torch.float64), positions)[0]
        return codes + scheme.rotate(torch.ones(1, 1, stop - start, width, dtype=torch.float64), positions)[0, 0] - 1.0


def describe_waves(view: EncodingView) -> Waves | None:
    """Summarise wavelengths and sign flips; None where features do not rotate in pairs."""
    periods = laws.wavelengths(view)
    if periods is None:
        return None
    ratios = (periods[1:] / periods[:-1]).log()
    flips = laws.flips(view).double()
    often = (flips >= 4) & (view.positions.shape[1] == 1)  # fewer say little; on a grid the text jumps
    halving = None
    if int(often.sum()) >= 3 and float(flips[often].std()) > 0:
        index = torch.arange(len(flips), dtype=torch.float64)[often]
        slope = torch.linalg.lstsq(
            torch.stack([index, torch.ones_like(index)], -1), flips[often].log2()[:, None]
        ).solution
        halving = -1.0 / float(slope[0])
    geometric = float((ratios - ratios.mean()).abs().amax()) if len(ratios) else 0.0
    return Waves(float(periods.min()), float(periods.max()), geometric, halving)


def _half_distance(curve: Tensor) -> int | None:
    below = (curve <= curve[0] / 2).nonzero()
    return int(below[0]) if float(curve[0]) > 0 and len(below) else None


def _cost(scheme: Position, door: str, width: int) -> Cost:
    own = sum(parameter.numel() for parameter in scheme.parameters())
    wider = 4 * (2 * width) ** 2 if door == "embed" else None
    return Cost(own, 4 * width**2, wider)


@dataclass(frozen=True, eq=False)
class Moved:
    """A linear map applied to one code: `matrix @ before` is `moved`, and should be `after`."""

    exact: bool  # by its formula, or else fitted to all positions
    matrix: Float[Tensor, "W W"]
    place: int
    before: Float[Tensor, " W"]
    moved: Float[Tensor, " W"]
    after: Float[Tensor, " W"]


def find_shift(view: EncodingView, steps: int, place: int, base: float | None = None) -> Moved | None:
    """Move the position nearest to the wanted one; None where there are no codes, or no two positions so far apart.

    With a base the codes are sinusoidal, and the map is known; else it is fitted by least squares.
    """
    start, end = pairs_at(view.positions, step_axis(view.positions), steps)
    if view.size() == 0.0 or not len(start):
        return None
    width = view.codes.shape[1]
    exact = None if base is None or width % 2 else shift_matrix(steps, width, base)
    # Codes may have dependent features, so the solver must handle any rank.
    fitted = torch.linalg.lstsq(view.codes[start], view.codes[end], driver="gelsd").solution.T
    matrix = fitted if exact is None else exact
    nearest = int((start - place).abs().argmin())
    before, after = view.codes[start[nearest]], view.codes[end[nearest]]
    return Moved(exact is not None, matrix, int(start[nearest]), before, matrix @ before, after)


@in_style
def draw_positions(reports: list[PositionReport]) -> "Figure":
    """Draw one encoding in detail, or several in rows to compare."""
    if len(reports) == 1:
        return _draw_one(reports[0])
    figure = new_figure(figsize=(10, 1.9 * len(reports)))
    for row, report in zip(figure.subplots(len(reports), 3, width_ratios=[1.2, 1.2, 1]), reports, strict=True):
        _draw_views(row[0], row[1], row[2], report)
    return figure


def _draw_one(report: PositionReport) -> "Figure":
    figure = new_figure(figsize=(11, 6.4))
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
    """Put all sines to the left and all cosines to the right."""
    return torch.cat([codes[:, ::2], codes[:, 1::2]], dim=1)


def bits(n: int) -> Int[Tensor, "N bits"]:
    """Return the binary digits of 0 … n − 1, lowest first, as the sines run from fast to slow."""
    return torch.arange(n)[:, None] >> torch.arange(max(1, (n - 1).bit_length())) & 1


def _draw_views(whole: "Axes", split: "Axes", profile: "Axes", report: PositionReport) -> None:
    """Draw the codes as they are, the codes by halves, and the profile."""
    _draw_codes(
        whole, report.codes, f"{report.name}: " + ("added at each distance" if report.door == "bias" else "codes")
    )
    _draw_codes(
        split, halves(report.codes), "even | odd features" if report.waves is None else "sine half | cosine half"
    )
    for axes in (whole, split):
        axes.set(xlabel="feature", ylabel="distance" if report.door == "bias" else "position")
    _draw_profile(profile, report)


def _draw_codes(axes: "Axes", codes: Tensor, title: str) -> None:
    top = float(codes.abs().max()) or 1.0
    image = axes.imshow(codes.numpy(), cmap="RdBu", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
    axes.set_title(title)
    bar = axes.get_figure().colorbar(image, ax=axes, fraction=0.05)  # pyright: ignore[reportOptionalMemberAccess]
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def _draw_profile(axes: "Axes", report: PositionReport) -> None:
    axes.plot(report.profile.numpy())
    what = "what is added to the score" if report.door == "bias" else "PE(p)·PE(p + k)"
    axes.set(title=what, xlabel="distance k")


LAWS = {
    "unique": "unique",
    "bounded": "bounded",
    "deterministic": "fixed",
    "even_steps": "even\nsteps",
    "distance_only": "by dis-\ntance",
    "symmetric": "sym-\nmetric",
    "shift": "linear\nshift",
}


CAPTION = (
    "✓ holds, ✗ does not, – nothing to measure. unique: smallest distance of two codes; bounded: largest number in a "
    "code; fixed: difference of two random starts; even steps: change of a step when the text is twice as long; by "
    "distance: spread of PE(p)·PE(q) at equal p − q; symmetric: against PE(q)·PE(p); linear shift: residual of one "
    "matrix that takes PE(p) to PE(p + 1)."
)


def positions_table(reports: list[PositionReport], length: int, width: int) -> Table:
    """List the laws for each encoding, narrow enough for 80 columns."""
    table = Table(title=f"Laws of positions at length {length}, width {width}", caption=CAPTION, **QUIET)
    table.add_column("scheme", no_wrap=True)
    for title in (*LAWS.values(), "param-\neters"):
        table.add_column(title, justify="right", no_wrap=True)
    for report in reports:
        cells = [_cell(getattr(report, law)) for law in LAWS]
        table.add_row(report.name, *cells, f"{report.cost.scheme:,}")
    return table


def facts_table(report: PositionReport) -> Table:
    """List the properties of one encoding beyond the laws."""
    table = Table(title=f"More about {report.name}", **QUIET, show_header=False)
    table.add_row(
        "acts on",
        {"embed": "token vectors", "rotate": "queries and keys", "bias": "scores"}.get(report.door, "nothing"),
    )
    if report.waves is not None:
        waves = report.waves
        table.add_row("wavelengths", f"{waves.shortest:.4f} … {waves.longest:,.1f} positions")
        table.add_row("ratio of neighbours", f"constant up to {waves.geometric:.1e}")
        if waves.pairs_per_halving is not None:
            table.add_row(
                "like a binary counter", f"half as many flips every {waves.pairs_per_halving:.2f} pairs (a counter: 1)"
            )
    if report.circles.holds:
        table.add_row("pairs of features", "stay on circles")
    if report.half_distance is not None:
        table.add_row("product halves at distance", str(report.half_distance))
    if report.distinct_up_to is not None:
        table.add_row("codes differ", f"for all positions 0 … {report.distinct_up_to:,}")
    if report.cost.layer_concatenated is not None:
        added, wide = report.cost.layer_added, report.cost.layer_concatenated
        table.add_row(
            "attention layer above", f"{added:,} parameters if added, {wide:,} if set beside an equally wide vector"
        )
    return table


def _cell(law: LawCheck) -> Text:
    if law.value is None:
        return Text("–", style="dim")
    mark, colour = ("✓", "green") if law.holds else ("✗", "red")
    return Text(f"{_short(law.value)} {mark}", style=colour)


def _short(number: float) -> str:
    """Format a number in five characters; what float64 cannot distinguish from 0 is about 0."""
    if 0 < number < 1e-12:
        return "≈0"
    if number == 0 or number >= 100:
        return f"{number:.0f}"
    return f"{number:.2g}" if number >= 0.01 else f"{number:.0e}"
