"""Properties that a position encoding may have, measured on its codes and on the scores they give."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Relative to the size of what is compared: float64 arithmetic stays well below, a broken law is far above.
EXACT = 1e-9


@dataclass(frozen=True)
class LawCheck:
    """One measurement, and whether the law holds; None where there is nothing to measure."""

    value: float | None
    holds: bool | None


@dataclass(frozen=True, eq=False)
class EncodingView:
    """An encoding by what it does: a code for each position, and the score of every two positions."""

    door: str
    positions: Int[Tensor, "N A"]
    codes: Float[Tensor, "N W"]
    products: Float[Tensor, "N N"]

    def size(self) -> float:
        """Return the largest number in any code."""
        return float(self.codes.abs().amax()) if self.codes.numel() else 0.0


NOTHING = LawCheck(None, None)


def unique(view: EncodingView) -> LawCheck:
    """Measure the smallest distance between two codes."""
    if view.size() == 0.0:
        return LawCheck(0.0, False)
    distances = torch.cdist(view.codes, view.codes, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = float(distances.fill_diagonal_(math.inf).min())
    return LawCheck(nearest, nearest > EXACT * view.size())


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


def distance_only(view: EncodingView) -> LawCheck:
    """Measure the range of `PE(p)·PE(q)` among pairs with the same p − q, against the largest product."""
    top = float(view.products.abs().amax())
    if top == 0.0:
        return NOTHING
    gaps = view.positions[None, :, :] - view.positions[:, None, :]  # (N, N, A)
    reach = 2 * gaps.abs().amax(dim=(0, 1)) + 1
    stride = torch.cat([reach.new_ones(1), reach.cumprod(0)[:-1]])
    keys = ((gaps + reach // 2) * stride).sum(dim=-1).flatten()
    n_keys = int(keys.max()) + 1
    mean = torch.zeros(n_keys, dtype=torch.float64).scatter_reduce(
        0, keys, view.products.flatten(), "mean", include_self=False
    )
    spread = float((view.products.flatten() - mean[keys]).abs().amax()) / top
    return LawCheck(spread, spread < EXACT)


def symmetric(view: EncodingView) -> LawCheck:
    """Measure how much scores ahead differ from scores back."""
    top = float(view.products.abs().amax())
    if top == 0.0:
        return NOTHING
    gap = float((view.products - view.products.T).abs().amax()) / top
    return LawCheck(gap, gap < EXACT)


def shift(view: EncodingView, steps: int, matrix: Float[Tensor, "W W"] | None) -> LawCheck:
    """Measure how well one linear map takes PE(p) to PE(p + steps) for every p.

    Without a given matrix it is fitted by least squares on one half of the positions, chosen at random, and
    judged on the other: a map that only remembers positions would not be independent of p.
    """
    start, end = pairs_at(view.positions, step_axis(view.positions), steps)
    if view.size() == 0.0 or len(start) < 4:
        return NOTHING
    if matrix is None:
        driver = "gelsd"  # codes may have dependent features, so the solver must handle any rank
        fit, judge = torch.randperm(len(start), generator=torch.Generator().manual_seed(0)).chunk(2)
        linear = torch.linalg.lstsq(view.codes[start[fit]], view.codes[end[fit]], driver=driver).solution
        start, end = start[judge], end[judge]
    else:
        linear = matrix.T
    target = view.codes[end]
    residual = float((view.codes[start] @ linear - target).norm() / target.norm())
    return LawCheck(residual, residual < EXACT)


def profile(view: EncodingView) -> Float[Tensor, " reach"]:
    """Return the mean product of two positions k steps apart, for k = 0, 1, …."""
    axis = step_axis(view.positions)
    gaps = view.positions[None, :, :] - view.positions[:, None, :]  # (N, N, A)
    steps = gaps[..., axis]
    along = (gaps.abs().sum(dim=-1) == steps) & (steps >= 0)
    sums = torch.zeros(int(steps.max()) + 1, dtype=torch.float64)
    counts = sums.index_add(0, steps[along], torch.ones_like(view.products[along]))
    return (sums.index_add(0, steps[along], view.products[along]) / counts)[counts > 0]


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
