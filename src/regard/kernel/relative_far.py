"""How far a slope lets any query of a head see: keys beyond have no weight in float32, and their tiles are left out."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.relative_places import LOG2E, rows_of

ROWS = 64
# Below 2⁻³² of the greatest weight; as weights fall with distance, all that is left out stays below 2⁻²⁴ of a row.
BITS = tl.constexpr(32.0)
FARTHEST = tl.constexpr(1e9)


def measure(k: Tensor) -> Tensor:
    """Gives the length of each head's longest key as the bits of a float32, and room for distances: (2, B · H)."""
    B, H, K, E = k.shape
    found = torch.zeros(2, B * H, dtype=torch.int32, device=k.device)
    wide = max(16, triton.next_power_of_2(E))
    _measure[triton.cdiv(K, ROWS), B * H](k, found, *k.stride()[:3], H, K, E, WIDTH=wide, ROWS=ROWS, num_warps=4)
    return found


@triton.jit
def _measure(k_at, found_at, k_b, k_h, k_t, H, K, E: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    n = tl.program_id(1)
    k_at += (n // H).to(tl.int64) * k_b + n % H * k_h
    lengths = length(rows_of(k_at, tl.program_id(0) * ROWS, k_t, K, E, ROWS, WIDTH, False))
    # Numbers that are not negative are in the order of their bits.
    tl.atomic_max(found_at + n, tl.max(lengths, 0).to(tl.int32, bitcast=True), sem="relaxed")


@triton.jit
def length(x):
    """Gives the length of each row."""
    x = x.to(tl.float32)
    return tl.sqrt(tl.sum(x * x, 1))


@triton.jit
def bound(q, longest_at, scale):
    """Gives what no product of these queries exceeds (Cauchy and Schwarz), as powers of two, above the least weight."""
    return length(q) * tl.load(longest_at).to(tl.float32, bitcast=True) * (scale * LOG2E) + BITS


@triton.jit
def farthest(most, seen, real, slope):
    """Gives the greatest distance at which a key may have a weight, of queries of which scores up to `seen` are known.

    The slope takes the more off what a product can be at `most`, the farther a key is away.
    """
    distance = tl.where(slope > 0.0, tl.minimum((most - seen) / slope, FARTHEST), FARTHEST)
    return tl.max(tl.where(real, distance, 0.0), 0).to(tl.int32) + 1
