"""What the gradient of a softmax takes off in each row: the product of an output and its gradient."""

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 32


def delta(out: Tensor, d_out: Tensor) -> Tensor:
    """Gives `Σ out · d_out` over the last of four axes, (B · H, Q) in float32; a row's features lie side by side."""
    B, H, Q, E = out.shape
    products = torch.empty(B * H, Q, dtype=torch.float32, device=out.device)
    _delta[triton.cdiv(Q, ROWS), B * H](
        *(out, d_out, products, *out.stride()[:3], *d_out.stride()[:3], H, Q, E),
        WIDE=triton.next_power_of_2(E),
        ROWS=ROWS,
        num_warps=4,
    )
    return products


@triton.jit
def _delta(
    out_at, d_out_at, products_at, out_b, out_h, out_t, d_b, d_h, d_t, H, Q, E, ROWS: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    batch, head = (tl.program_id(1) // H).to(tl.int64), tl.program_id(1) % H
    rows, cols = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    inside = (rows < Q)[:, None] & (cols < E)[None, :]
    far = rows.to(tl.int64)[:, None]
    out = tl.load(out_at + batch * out_b + head * out_h + far * out_t + cols[None, :], inside, 0.0)
    d_out = tl.load(d_out_at + batch * d_b + head * d_h + far * d_t + cols[None, :], inside, 0.0)
    products = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1)
    tl.store(products_at + tl.program_id(1).to(tl.int64) * Q + rows, products, rows < Q)
