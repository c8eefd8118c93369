"""What additive attention asks of every pair of query and key in a tile."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.tanh import tanh

AT_ONCE = 4  # features whose loads are in flight together; features come in multiples of it


def by_feature(q: Tensor, k: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gives queries (N, F, Q), keys (N, F, K) and w (H, F) in float32, with features of no weight to fill up."""
    return _turned(q), _turned(k), F.pad(w, (0, -w.shape[1] % AT_ONCE))


def _turned(x: Tensor) -> Tensor:
    N, T, width = x.shape
    turned = x.new_zeros(N, width + -width % AT_ONCE, T, dtype=torch.float32)
    turned[:, :width] = x.transpose(1, 2)
    return turned


@triton.jit
def pair_scores(
    q_at, k_at, w_at, rows, cols, n_rows, n_cols, Q, K, F, HARDWARE: tl.constexpr, AT_ONCE: tl.constexpr
):  # fmt: skip
    """Gives `w · tanh(q + k)` for some queries and keys, which lie feature by feature, Q and K numbers apart."""
    scores = tl.zeros([rows.shape[0], cols.shape[0]], tl.float32)
    for first in range(0, F, AT_ONCE):
        for i in tl.static_range(AT_ONCE):
            q = tl.load(q_at + (first + i) * Q + rows, rows < n_rows, 0.0)
            k = tl.load(k_at + (first + i) * K + cols, cols < n_cols, 0.0)
            scores += tl.load(w_at + first + i) * tanh(q[:, None] + k[None, :], HARDWARE)
    return scores
