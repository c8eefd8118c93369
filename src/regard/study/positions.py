"""`regard positions`: what position encodings are like."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from rich.table import Table
from rich.text import Text
from torch import Tensor

from regard.plot.style import in_style, new_figure
from regard.position import POSITION, Position
from regard.position.absolute import shift_matrix
from regard.shapes import Float, Int
from regard.study import laws
from regard.study.laws import EncodingView, LawCheck
from regard.study.position_views import (
    BASE,
    MeasuredScheme,
    check_shifts,
    check_size,
    distinct_up_to,
    named_scheme,
)
from regard.terminal import QUIET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIN_LENGTH, MIN_WIDTH = 8, 3
FAR = 1_000_000  # position up to which codes are compared
SHOWN = 1024  # positions whose codes are drawn and in the JSON
FLIPS = 12  # features and bits whose changes of sign a table lists
MAP = 64  # positions of the map of positions × positions


@dataclass(frozen=True)
class Waves:
    """The periods of the rotating pairs of features, compared with the bits of a binary counter."""

    shortest: float
    longest: float
    geometric: float  # largest deviation of the ratio of neighbours from their common ratio; 0 is a perfect progression
    pairs_per_halving: float | None  # a binary counter has 1: each bit flips half as often as the one before


@dataclass(frozen=True)
class Counter:
    """How often signs change along the text: of every second feature, and of the bits of a binary counter."""

    flips: list[int]
    bit_flips: list[int]


@dataclass(frozen=True)
class ShiftCheck:
    """How well one linear map takes every code some steps on."""

    steps: int
    value: float | None
    holds: bool | None


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
    n_positions: int  # that were measured
    n_from: int  # of them, from which products by distance were taken
    unique: LawCheck
    bounded: LawCheck
    deterministic: LawCheck
    even_steps: LawCheck
    distance_only: LawCheck
    symmetric: LawCheck
    circles: LawCheck
    shift: LawCheck  # by the first of `shifts`
    shifts: list[ShiftCheck]
    waves: Waves | None
    counter: Counter | None
    half_distance: int | None  # first distance at which the product is half of that at distance 0
    distinct_up_to: int | None  # all codes of positions 0 … this differ; None where codes end or depend on the text
    cost: Cost
    profile: Float[Tensor, " reach"]
    codes: Float[Tensor, "N W"]  # of the first positions
    map: Float[Tensor, "M M"]  # the score of every two of the first positions


def run_positions(
    names: list[str],
    length: int,
    width: int,
    base: float = BASE,
    far: int = FAR,
    shifts: Sequence[int] = (1,),
) -> Iterator[PositionReport]:
    """Examine the named encodings, or all of the table, one after the other."""
    if length < MIN_LENGTH or width < MIN_WIDTH:
        raise ValueError(f"length must be {MIN_LENGTH} or more and width {MIN_WIDTH} or more, got {length} and {width}")
    check_size(length, width)
    check_shifts(shifts, length)
    for name in names or POSITION:
        yield examine(name, length, width, base, far, shifts)


def examine(name: str, length: int, width: int, base: float, far: int, shifts: Sequence[int] = (1,)) -> PositionReport:
    """Measure one encoding of the table."""
    return measure(named_scheme(name, length, width, base), far, shifts)


def measure(studied: MeasuredScheme, far: int = FAR, shifts: Sequence[int] = (1,)) -> PositionReport:
    """Measure one encoding at its length."""
    n, scheme = studied.length, studied.scheme
    whole, half = studied.view(n), studied.view(n // 2)
    products = laws.by_offset(whole)
    even_steps, curve = laws.even_steps(half, whole), laws.profile(whole, products)
    again = None if studied.again is None else replace(studied, scheme=studied.again).view(n)
    checks = [ShiftCheck(steps, *_shift_law(studied, whole, steps)) for steps in shifts]
    some = torch.arange(min(n, MAP))
    reaches_far = whole.door in {"embed", "rotate"} and scheme.n_axes == 1 and even_steps.holds
    return PositionReport(
        name=studied.label,
        door=whole.door,
        n_positions=n,
        n_from=products.n_from,
        unique=laws.unique(whole),
        bounded=laws.bounded(half, whole),
        deterministic=laws.NOTHING if again is None else laws.deterministic(whole, again),
        even_steps=even_steps,
        distance_only=laws.distance_only(products),
        symmetric=laws.symmetric(whole),
        circles=laws.on_circles(whole),
        shift=LawCheck(checks[0].value, checks[0].holds),
        shifts=checks,
        waves=describe_waves(whole),
        counter=count_flips(whole),
        half_distance=_half_distance(curve),
        distinct_up_to=distinct_up_to(scheme, far, studied.far_width(whole.door)) if reaches_far else None,
        cost=_cost(scheme, whole.door, studied.d_model),
        profile=curve,
        codes=whole.codes[:SHOWN],
        map=whole.products(some, some),
    )


def _shift_law(studied: MeasuredScheme, whole: EncodingView, steps: int) -> tuple[float | None, bool | None]:
    width = whole.codes.shape[1]
    known = studied.base is not None and width % 2 == 0
    law = laws.shift(whole, steps, shift_matrix(steps, width, studied.base or BASE) if known else None)
    return law.value, law.holds


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


def count_flips(view: EncodingView) -> Counter | None:
    """Count changes of sign; None where features do not rotate in pairs, or a text is not one line."""
    if not laws.on_circles(view).holds or view.positions.shape[1] > 1:
        return None
    return Counter(laws.flips(view).tolist(), bits(len(view.codes)).diff(dim=0).abs().sum(dim=0).tolist())


def _half_distance(curve: Tensor) -> int | None:
    below = (curve <= curve[0] / 2).nonzero()
    return int(below[0]) if float(curve[0]) > 0 and len(below) else None


def _cost(scheme: Position, door: str, width: int) -> Cost:
    own = sum(parameter.numel() for parameter in scheme.parameters())
    wider = 4 * (2 * width) ** 2 if door == "embed" else None
    return Cost(own, 4 * width**2, wider)


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
    products.imshow(report.map.numpy(), cmap="viridis", aspect="auto", interpolation="nearest")
    what = "what is added to the score" if report.door == "bias" else "products of codes, PE(p)·PE(q)"
    products.set(title=what, xlabel="q", ylabel="p")
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
    "distance: spread of PE(p)·PE(q) at equal p − q; symmetric: against PE(q)·PE(p); linear shift: what one matrix "
    "that takes PE(p) to PE(p + k) misses, k = {}, against the size of the codes; – where codes are too few to tell a "
    "law from a map that remembers each.{}"
)


def positions_table(reports: list[PositionReport], length: int, width: int) -> Table:
    """List the laws for each encoding, narrow enough for 80 columns."""
    caption = CAPTION.format(reports[0].shifts[0].steps, _sampled(reports))
    table = Table(title=f"Laws of positions at length {length:,}, width {width}", caption=caption, **QUIET)
    table.add_column("scheme", no_wrap=True)
    for title in (*LAWS.values(), "param-\neters"):
        table.add_column(title, justify="right", no_wrap=True)
    for report in reports:
        cells = [_cell(getattr(report, law)) for law in LAWS]
        table.add_row(report.name, *cells, f"{report.cost.scheme:,}")
    return table


def shifts_table(reports: list[PositionReport]) -> Table:
    """List for several k what one matrix that takes PE(p) to PE(p + k) misses."""
    table = Table(title="Linear shift by k, against the size of the codes", **QUIET)
    table.add_column("scheme", no_wrap=True)
    for check in reports[0].shifts:
        table.add_column(f"k = {check.steps}", justify="right", no_wrap=True)
    for report in reports:
        table.add_row(report.name, *map(_cell, report.shifts))
    return table


def _sampled(reports: list[PositionReport]) -> str:
    """Say what was not measured between all pairs."""
    by_number: dict[int, list[str]] = {}
    for report in reports:
        if report.n_from < report.n_positions and report.distance_only.value is not None:
            by_number.setdefault(report.n_from, []).append(report.name)
    said = [f"by distance, from {n:,} positions to all ({', '.join(names)})" for n, names in by_number.items()]
    n = max(report.n_positions for report in reports)
    said += [f"unique, from {laws.MAX_DISTANCES // n:,} positions to all"] * (n * n > laws.MAX_DISTANCES)
    said += [f"symmetric, between {laws.MAX_SQUARE:,} positions"] * (n > laws.MAX_SQUARE)
    return f" Drawn at random: {'; '.join(said)}." if said else ""


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
    if report.counter is not None:
        table.add_row("changes of sign, pair by pair", _listed(report.counter.flips))
        table.add_row("of the bits of a counter", _listed(report.counter.bit_flips))
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


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:FLIPS])) + (" …" if len(numbers) > FLIPS else "")


def _cell(law: LawCheck | ShiftCheck) -> Text:
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
