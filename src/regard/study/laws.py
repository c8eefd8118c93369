"""The laws that a position encoding should satisfy (S6), as measurements on codes and on the scores they give."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Relative to the size of what is compared: float64 arithmetic stays well below, a broken law is far above.
EXACT = 1e-9


@dataclass(frozen=True)
class Law:
    """One measured number, and whether the law holds; None where there is nothing to measure."""

    value: float | None
    holds: bool | None


@dataclass(frozen=True, eq=False)
class View:
    """A scheme seen through the door it opens: a code for each place, and what two places score together."""

    door: str
    places: Int[Tensor, "N A"]
    codes: Float[Tensor, "N W"]
    products: Float[Tensor, "N N"]

    def size(self) -> float:
        """Gives the largest number in any code."""
        return float(self.codes.abs().amax()) if self.codes.numel() else 0.0


NOTHING = Law(None, None)


def unique(view: View) -> Law:
    """Measures the smallest distance between two codes (S6.1)."""
    if view.size() == 0.0:
        return Law(0.0, False)
    distances = torch.cdist(view.codes, view.codes, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = float(distances.fill_diagonal_(math.inf).min())
    return Law(nearest, nearest > EXACT * view.size())


def bounded(half: View, whole: View) -> Law:
    """Measures the largest number in a code; the law is broken if it grows when the text is twice as long (S6.1)."""
    if whole.size() == 0.0:
        return NOTHING
    return Law(whole.size(), whole.size() <= 1.5 * half.size())


def deterministic(one: View, other: View) -> Law:
    """Compares two instances made from different random seeds (S6.1)."""
    gap = float((one.codes - other.codes).abs().amax())
    return Law(gap, gap == 0.0)


def on_circles(view: View) -> Law:
    """Measures how far each pair of features strays from a circle around 0 (S6.4 needs it)."""
    if view.size() == 0.0 or view.codes.shape[1] % 2:
        return NOTHING
    radii = view.codes.unflatten(1, (-1, 2)).norm(dim=-1)
    stray = float((radii - radii[:1]).abs().amax()) / view.size()
    return Law(stray, stray < EXACT)


def even_steps(half: View, whole: View) -> Law:
    """Measures how much the distance of one step changes when the text is twice as long (S6.2)."""
    if whole.size() == 0.0:
        return NOTHING
    steps = []
    for view in (half, whole):
        start, end = pairs_at(view.places, step_axis(half.places), 1)
        lengths = (view.codes[end] - view.codes[start]).norm(dim=-1)
        steps.append(dict(zip(map(tuple, view.places[start].tolist()), lengths.tolist(), strict=True)))
    shared = steps[0].keys() & steps[1].keys()
    change = max(abs(steps[0][place] - steps[1][place]) for place in shared)
    return Law(change, change < EXACT * whole.size())


def distance_only(view: View) -> Law:
    """Measures the spread of `PE(p)·PE(q)` among pairs with the same p − q, against the largest product (S6.3)."""
    top = float(view.products.abs().amax())
    if top == 0.0:
        return NOTHING
    gaps = view.places[None, :, :] - view.places[:, None, :]  # (N, N, A)
    reach = 2 * gaps.abs().amax(dim=(0, 1)) + 1
    stride = torch.cat([reach.new_ones(1), reach.cumprod(0)[:-1]])
    keys = ((gaps + reach // 2) * stride).sum(dim=-1).flatten()
    n_keys = int(keys.max()) + 1
    mean = torch.zeros(n_keys, dtype=torch.float64).scatter_reduce(
        0, keys, view.products.flatten(), "mean", include_self=False
    )
    spread = float((view.products.flatten() - mean[keys]).abs().amax()) / top
    return Law(spread, spread < EXACT)


def symmetric(view: View) -> Law:
    """Measures how far looking ahead differs from looking back (S6.3)."""
    top = float(view.products.abs().amax())
    if top == 0.0:
        return NOTHING
    gap = float((view.products - view.products.T).abs().amax()) / top
    return Law(gap, gap < EXACT)


def shift(view: View, steps: int, matrix: Float[Tensor, "W W"] | None) -> Law:
    """Measures how well one linear map takes PE(p) to PE(p + steps) for every p (S6.4).

    Without a given matrix it is fitted by least squares on one half of the places, chosen at random, and judged on the
    other: a map that only remembers the places it has seen would not be independent of p.
    """
    start, end = pairs_at(view.places, step_axis(view.places), steps)
    if view.size() == 0.0 or len(start) < 4:
        return NOTHING
    if matrix is None:
        driver = "gelsd"  # codes may have dependent features, so the solver must handle any rank
        fit, judge = torch.randperm(len(start), generator=torch.Generator().manual_seed(0)).chunk(2)
        found = torch.linalg.lstsq(view.codes[start[fit]], view.codes[end[fit]], driver=driver).solution
        start, end = start[judge], end[judge]
    else:
        found = matrix.T
    target = view.codes[end]
    residual = float((view.codes[start] @ found - target).norm() / target.norm())
    return Law(residual, residual < EXACT)


def profile(view: View) -> Float[Tensor, " reach"]:
    """Gives the mean product of two places k steps apart, for k = 0, 1, … (S6.3)."""
    axis = step_axis(view.places)
    gaps = view.places[None, :, :] - view.places[:, None, :]  # (N, N, A)
    steps = gaps[..., axis]
    along = (gaps.abs().sum(dim=-1) == steps) & (steps >= 0)
    sums = torch.zeros(int(steps.max()) + 1, dtype=torch.float64)
    counts = sums.index_add(0, steps[along], torch.ones_like(view.products[along]))
    return (sums.index_add(0, steps[along], view.products[along]) / counts)[counts > 0]


def wavelengths(view: View) -> Float[Tensor, " pairs"] | None:
    """Measures the period of each pair of features that a step turns; None where pairs leave their circles."""
    if not on_circles(view).holds:
        return None
    start, end = pairs_at(view.places, step_axis(view.places), 1)
    here, there = (view.codes[i[0]].unflatten(0, (-1, 2)) for i in (start, end))
    across = here[:, 0] * there[:, 1] - here[:, 1] * there[:, 0]
    angles = torch.atan2(across, (here * there).sum(dim=-1)).abs()
    return 2 * math.pi / angles[angles > 1e-12]


def flips(view: View) -> Int[Tensor, " pairs"]:
    """Counts how often every second feature changes its sign along the text, like the bits of a counter."""
    signs = view.codes[:, ::2] >= 0
    return (signs[1:] != signs[:-1]).sum(dim=0)


def step_axis(places: Int[Tensor, "N A"]) -> int:
    """Gives the coordinate along which most places have a neighbour."""
    return max(range(places.shape[1]), key=lambda axis: len(pairs_at(places, axis, 1)[0]))


def pairs_at(places: Int[Tensor, "N A"], axis: int, steps: int) -> tuple[Int[Tensor, " P"], Int[Tensor, " P"]]:
    """Finds all pairs of places that differ by `steps` along one axis and not at all along the others."""
    index = {tuple(place): i for i, place in enumerate(places.tolist())}
    found = []
    for place, i in index.items():
        j = index.get((*place[:axis], place[axis] + steps, *place[axis + 1 :]))
        if j is not None:
            found.append((i, j))
    pairs = torch.tensor(found, dtype=torch.long).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
