"""Every position scheme, measured against the laws of S6."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.build import build_part
from regard.config import PartSettings
from regard.position import POSITION, Position
from regard.position.sinusoidal import shift_matrix
from regard.study import laws
from regard.study.laws import Law, View

N_HEADS = 8
# Laws over pairs of places look at no more places than this: their cost grows with the square.
MOST_PLACES = 1024


@dataclass(frozen=True)
class Waves:
    """The periods of the turning pairs, and how like the bits of a counter they slow down (S6.5)."""

    shortest: float
    longest: float
    geometric: float  # largest deviation of the ratio of neighbours from their common ratio; 0 is a perfect progression
    pairs_per_halving: float | None  # a binary counter has 1: each bit flips half as often as the one before


@dataclass(frozen=True)
class Cost:
    """Parameters: the scheme's own, and those of the attention layer above it."""

    scheme: int
    layer_added: int
    layer_concatenated: int | None  # None where there is no code to set beside the token's vector


@dataclass(frozen=True)
class PositionReport:
    """What one scheme is like at one length and width."""

    name: str
    door: str
    unique: Law
    bounded: Law
    deterministic: Law
    even_steps: Law
    distance_only: Law
    symmetric: Law
    circles: Law
    shift: Law
    waves: Waves | None
    half_distance: int | None  # first distance at which the product is half of that at distance 0
    distinct_up_to: int | None  # all codes of positions 0 … this differ; None where codes end or depend on the text
    cost: Cost
    profile: Float[Tensor, " reach"]
    codes: Float[Tensor, "N W"]


def run_positions(
    names: list[str], length: int, width: int, base: float = 10000.0, far: int = 1_000_000
) -> Iterator[PositionReport]:
    """Examines the named schemes, or all, one after the other."""
    if length < 8 or width < 3:
        raise ValueError(f"length must be 8 or more and width 3 or more, got {length} and {width}")
    for name in names or POSITION:
        yield examine(name, length, width, base, far)


def examine(name: str, length: int, width: int, base: float, far: int) -> PositionReport:
    """Measures one scheme."""
    scheme, again = (make(name, length, width, base, seed) for seed in (0, 1))
    n = min(length, MOST_PLACES)
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
    """Builds a scheme in float64 with tables just long enough."""
    sizes = {"width": width, "d_head": width, "n_heads": N_HEADS, "base": base, "max_len": length}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_part(POSITION, PartSettings(name), "position", sizes).double()


def view(scheme: Position, n: int, width: int) -> View:
    """Looks at a scheme as at a black box: which door does it open, and what comes through?"""
    positions = scheme.places(n)
    places = positions.reshape(n, -1)
    with torch.no_grad():
        codes = scheme.embed(torch.zeros(1, n, width, dtype=torch.float64), positions)[0]
        if codes.any():
            return View("embed", places, codes, codes @ codes.T)
        ones = torch.full((1, N_HEADS, n, width), width**-0.5, dtype=torch.float64)
        turned = scheme.rotate(ones, positions)[0, 0]
        if (turned != ones[0, 0]).any():
            return View("rotate", places, turned, turned @ turned.T)
        bias = scheme.bias(ones, ones, positions, positions)
        if bias is not None:
            return View("bias", places, _bias_codes(scheme, positions, width), bias[0].mean(dim=0))
    return View("none", places, codes, codes @ codes.T)


def _bias_codes(scheme: Position, positions: Tensor, width: int) -> Tensor:
    """Gives what each offset from place 0 adds: for each head, or, where it depends on the query, for each feature."""
    features = torch.eye(width, dtype=torch.float64).expand(1, N_HEADS, width, width)
    start = positions.new_zeros(1, width)
    bias = scheme.bias(features, features[:, :, :1].expand(-1, -1, positions.shape[1], -1), start, positions)
    assert bias is not None, "a scheme that opened its bias door has closed it again"
    by_head, by_feature = bias[0, :, 0].T, bias[0, 0].T
    return by_head if (bias == bias[:, :, :1]).all() else by_feature


def distinct_up_to(scheme: Position, far: int, width: int, chunk: int = 2**14) -> int | None:
    """Gives the last position up to which all codes differ, `far` at most; None where the scheme's table ends before.

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
    """Gives the codes of consecutive positions by whichever door is open."""
    positions = torch.arange(start, stop)[None]
    with torch.no_grad():
        codes = scheme.embed(torch.zeros(1, stop - start, width, dtype=torch.float64), positions)[0]
        return codes + scheme.rotate(torch.ones(1, 1, stop - start, width, dtype=torch.float64), positions)[0, 0] - 1.0


def describe_waves(view: View) -> Waves | None:
    """Sums up the wavelengths and the flips of sign; None where features do not turn in pairs."""
    periods = laws.wavelengths(view)
    if periods is None:
        return None
    ratios = (periods[1:] / periods[:-1]).log()
    flips = laws.flips(view).double()
    often = (flips >= 4) & (view.places.shape[1] == 1)  # fewer say little; on a grid the text jumps
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
