"""Properties that a position encoding may have, measured on its codes and on the scores they give."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.shapes import Float, Int

# Relative to the size of what is compared: float64 arithmetic stays well below, a broken law is far above.
EXACT = 1e-9
# Products that a law over pairs computes at most; from there on it looks from a sample of the positions at all others.
MAX_PRODUCTS = 2**23
MAX_DISTANCES = 2**25  # the same for the search for the nearest codes
MAX_SORTED = 2**22  # of these where offsets are too many for a table, and must be sorted
MAX_SQUARE = 1024  # positions that symmetry is measured between
MAX_FIT = 2**14  # pairs that a linear map is fitted to
BLOCK = 2**20  # products that are held at a time


@dataclass(frozen=True)
class LawCheck:
    """One measurement, and whether the law holds; None where there is nothing to measure."""

    value: float | None
    holds: bool | None


@dataclass(frozen=True, eq=False)
class EncodingView:
    """An encoding by what it does: a code for each position, and the score of any two positions, when asked.

    `products` takes the numbers of some positions and of others; each product costs `n_heads` of the budget.
    """

    door: str
    positions: Int[Tensor, "N A"]
    codes: Float[Tensor, "N W"]
    products: Callable[[Int[Tensor, " P"], Int[Tensor, " Q"]], Float[Tensor, "P Q"]]
    n_heads: int = 1

    @classmethod
    def of_codes(cls, door: str, positions: Int[Tensor, "N A"], codes: Float[Tensor, "N W"]) -> "EncodingView":
        """Return the view of codes whose products are `PE(p)·PE(q)`."""
        return cls(door, positions, codes, lambda rows, columns: codes[rows] @ codes[columns].T)

    def size(self) -> float:
        """Return the largest number in any code."""
        return float(self.codes.abs().amax()) if self.codes.numel() else 0.0


NOTHING = LawCheck(None, None)


def sample(n: int, most: int) -> Int[Tensor, " P"]:
    """Return all of n positions, or so many of them drawn at random, in order."""
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:most].sort().values


def looked_from(view: EncodingView) -> Int[Tensor, " P"]:
    """Return the positions from which a law over pairs looks at all others."""
    n = len(view.positions)
    return sample(n, max(1, MAX_PRODUCTS // (n * view.n_heads)))


def unique(view: EncodingView) -> LawCheck:
    """Measure the smallest distance between two codes.

    Equal codes are found by sorting. Otherwise the nearest code to each is found by products, which is fast, and its
    distance is then computed from the differences, which is exact.
    """
    if view.size() == 0.0 or len(torch.unique(view.codes, dim=0)) < len(view.codes):
        return LawCheck(0.0, False)
    codes = view.codes - view.codes.mean(dim=0)
    squares = codes.square().sum(dim=1)
    nearest = math.inf
    rows = sample(len(codes), max(1, MAX_DISTANCES // len(codes)))
    for block in blocks(rows, len(codes)):
        first = int(block[0]) if len(rows) == len(codes) else 0  # earlier codes have looked at these already
        later, own = codes[first:], (torch.arange(len(block)), block - first)
        apart = torch.addmm(squares[first:], codes[block], later.T, alpha=-2)  # less the row's own square
        apart[own] = math.inf
        nearest = min(nearest, float((later[apart.argmin(dim=1)] - codes[block]).norm(dim=1).min()))
        if nearest < 1e-6 * float(squares.amax()) ** 0.5:  # products cannot tell which is the nearest of such
            direct = torch.cdist(codes[block], later, compute_mode="donot_use_mm_for_euclid_dist")
            direct[own] = math.inf
            nearest = min(nearest, float(direct.min()))
    return LawCheck(nearest, nearest > EXACT * view.size())


def blocks(rows: Int[Tensor, " P"], columns: int) -> Iterator[Int[Tensor, " P2"]]:
    """Cut rows into blocks that have `BLOCK` products with all columns."""
    yield from rows.split(max(1, BLOCK // columns))


def bounded(half: EncodingView, whole: EncodingView) -> LawCheck:
    """Measure the largest number in a code; the law is broken if it grows when the text is twice as long."""
    if whole.size() == 0.0:
        return NOTHING
    return LawCheck(whole.size(), whole.size() <= 1.5 * half.size())


def deterministic(one: EncodingView, other: EncodingView) -> LawCheck:
    """Compare two instances made from different random seeds."""
    gap = float((one.codes - other.codes).abs().amax())
    return LawCheck(gap, gap == 0.0)


def on_circles(view: EncodingView) -> LawCheck:
    """Measure how far each pair of features strays from a circle around 0."""
    if view.size() == 0.0 or view.codes.shape[1] % 2:
        return NOTHING
    radii = view.codes.unflatten(1, (-1, 2)).norm(dim=-1)
    stray = float((radii - radii[:1]).abs().amax()) / view.size()
    return LawCheck(stray, stray < EXACT)


def even_steps(half: EncodingView, whole: EncodingView) -> LawCheck:
    """Measure how much the distance of one step changes when the text is twice as long."""
    if whole.size() == 0.0:
        return NOTHING
    steps = []
    for view in (half, whole):
        start, end = pairs_at(view.positions, step_axis(half.positions), 1)
        lengths = (view.codes[end] - view.codes[start]).norm(dim=-1)
        steps.append(dict(zip(map(tuple, view.positions[start].tolist()), lengths.tolist(), strict=True)))
    shared = steps[0].keys() & steps[1].keys()
    change = max(abs(steps[0][position] - steps[1][position]) for position in shared)
    return LawCheck(change, change < EXACT * whole.size())


@dataclass(frozen=True, eq=False)
class OffsetProducts:
    """The products of all pairs of positions p, q with the same offset q − p: mean, least and largest."""

    offsets: Int[Tensor, "M A"]
    mean: Float[Tensor, " M"]
    least: Float[Tensor, " M"]
    largest: Float[Tensor, " M"]
    n_from: int  # positions p

    def top(self) -> float:
        """Return the size of the largest product."""
        return max(float(self.least.abs().amax()), float(self.largest.abs().amax()))


def by_offset(view: EncodingView) -> OffsetProducts:
    """Summarise products by offset, in blocks: Θ(N) memory along one axis."""
    reach = 2 * (view.positions.amax(dim=0) - view.positions.amin(dim=0)) + 1
    stride = torch.cat([reach.new_ones(1), reach.cumprod(0)[:-1]])
    numbers = (view.positions * stride).sum(dim=1)  # the difference of two is the number of their offset
    zero, n_offsets = int((reach // 2 * stride).sum()), int(reach.prod())
    rows = looked_from(view)
    if n_offsets <= MAX_SORTED:
        found = _tabulate(view, rows, numbers.numpy(), zero, n_offsets)
    else:
        rows = rows[sample(len(rows), max(1, MAX_SORTED // (len(numbers) * view.n_heads)))]
        found = _sort(view, rows, numbers.numpy(), zero)
    keys, sums, counts, least, largest = map(torch.from_numpy, found)
    offsets = keys[:, None] // stride % reach - reach // 2
    return OffsetProducts(offsets, sums / counts, least, largest, len(rows))


Summary = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]


def _tabulate(view: EncodingView, rows: Tensor, numbers: NDArray[np.int64], zero: int, n_offsets: int) -> Summary:
    """Summarise row by row in tables with an entry for each offset, none of which occurs twice in a row."""
    sums, counts = np.zeros(n_offsets), np.zeros(n_offsets, dtype=np.int64)
    least, largest = np.full(n_offsets, np.inf), np.full(n_offsets, -np.inf)
    columns, in_line = torch.arange(len(numbers)), bool((np.diff(numbers) == 1).all())
    for block in blocks(rows, len(numbers) * view.n_heads):
        for row, products in zip(block.tolist(), view.products(block, columns).numpy(), strict=True):
            keys = numbers + (zero - numbers[row])
            at = slice(keys[0], keys[-1] + 1) if in_line else keys
            sums[at] += products
            counts[at] += 1
            least[at] = np.minimum(least[at], products)
            largest[at] = np.maximum(largest[at], products)
    seen = counts.nonzero()[0]
    return seen, sums[seen], counts[seen], least[seen], largest[seen]


def _sort(view: EncodingView, rows: Tensor, numbers: NDArray[np.int64], zero: int) -> Summary:
    """Summarise pairs in the order of their offsets, where a table of all offsets would be too large."""
    keys = (numbers + (zero - numbers[rows.numpy(), None])).flatten()
    products = view.products(rows, torch.arange(len(numbers))).flatten().numpy()
    order = keys.argsort(kind="stable")
    keys, products = keys[order], products[order]
    first = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    counts = np.diff(first, append=len(keys))
    return (
        keys[first],
        np.add.reduceat(products, first),
        counts,
        np.minimum.reduceat(products, first),
        np.maximum.reduceat(products, first),
    )


def distance_only(products: OffsetProducts) -> LawCheck:
    """Measure how far `PE(p)·PE(q)` strays from its mean among pairs with the same p − q, against the largest."""
    top = products.top()
    if top == 0.0:
        return NOTHING
    stray = torch.maximum(products.largest - products.mean, products.mean - products.least)
    spread = float(stray.amax()) / top
    return LawCheck(spread, spread < EXACT)


def symmetric(view: EncodingView) -> LawCheck:
    """Measure how much scores ahead differ from scores back."""
    some = sample(len(view.positions), MAX_SQUARE)
    products = view.products(some, some)
    top = float(products.abs().amax())
    if top == 0.0:
        return NOTHING
    gap = float((products - products.T).abs().amax()) / top
    return LawCheck(gap, gap < EXACT)


def shift(view: EncodingView, steps: int, matrix: Float[Tensor, "W W"] | None) -> LawCheck:
    """Measure how well one linear map takes PE(p) to PE(p + steps) for every p.

    The value is the size of what the map misses against the size of the codes: 0 for a law, about 1 for codes that have
    nothing to do with each other. Without a given matrix it is fitted by least squares, and what it misses is
    divided by √(1 − rank / n), since a map of that rank fits as many of n codes whatever they are. There is nothing to
    measure where all n are so fitted: such a map only remembers positions.
    """
    start, end = pairs_at(view.positions, step_axis(view.positions), steps)
    if view.size() == 0.0 or len(start) == 0:
        return NOTHING
    if matrix is not None:
        missed = view.codes[start] @ matrix.T - view.codes[end]
        residual = float(missed.norm() / view.codes[end].norm())
        return LawCheck(residual, residual < EXACT)
    codes, target = _distinct(view.codes[start], view.codes[end])
    chosen = sample(len(codes), MAX_FIT)
    codes, target = codes[chosen], target[chosen]
    fit = torch.linalg.lstsq(codes, target, driver="gelsd")  # features may depend on each other: any rank
    free = len(codes) - int(fit.rank)
    if free < 1:
        return NOTHING
    missed = (codes @ fit.solution - target).norm() / target.norm()
    residual = float(missed) * math.sqrt(len(codes) / free)
    return LawCheck(residual, residual < EXACT)


def _distinct(start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Return each pair of codes once: a pair that comes again says nothing new about a map."""
    once = torch.unique(torch.cat([start, end], dim=1), dim=0)
    return once[:, : start.shape[1]], once[:, start.shape[1] :]


def profile(view: EncodingView, products: OffsetProducts) -> Float[Tensor, " reach"]:
    """Return the mean product of two positions k steps apart, for k = 0, 1, …."""
    steps = products.offsets[:, step_axis(view.positions)]
    along = (products.offsets.abs().sum(dim=1) == steps) & (steps >= 0)
    return products.mean[along][steps[along].argsort()]


def wavelengths(view: EncodingView) -> Float[Tensor, " pairs"] | None:
    """Measure the period of each pair of features that a step rotates; None where pairs leave their circles."""
    if not on_circles(view).holds:
        return None
    start, end = pairs_at(view.positions, step_axis(view.positions), 1)
    here, there = (view.codes[i[0]].unflatten(0, (-1, 2)) for i in (start, end))
    across = here[:, 0] * there[:, 1] - here[:, 1] * there[:, 0]
    angles = torch.atan2(across, (here * there).sum(dim=-1)).abs()
    return 2 * math.pi / angles[angles > 1e-12]


def flips(view: EncodingView) -> Int[Tensor, " pairs"]:
    """Count how often every second feature changes its sign along the text, like the bits of a counter."""
    signs = view.codes[:, ::2] >= 0
    return (signs[1:] != signs[:-1]).sum(dim=0)


def step_axis(positions: Int[Tensor, "N A"]) -> int:
    """Return the coordinate along which most positions have a neighbour."""
    return max(range(positions.shape[1]), key=lambda axis: len(pairs_at(positions, axis, 1)[0]))


def pairs_at(positions: Int[Tensor, "N A"], axis: int, steps: int) -> tuple[Int[Tensor, " P"], Int[Tensor, " P"]]:
    """Find all pairs of positions that differ by `steps` along one axis and not at all along the others."""
    index = {tuple(position): i for i, position in enumerate(positions.tolist())}
    pairs = []
    for position, i in index.items():
        j = index.get((*position[:axis], position[axis] + steps, *position[axis + 1 :]))
        if j is not None:
            pairs.append((i, j))
    start, end = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).unbind(1)
    return start, end
