"""Additive attention of many queries: scores of some of them at a time, and the softmax that mixes values by them."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.additive_backward import by_feature, chunks, gradients, score
from regard.kernels.primitives import cut, interval, kept, sight
from regard.mask import Mask

SHAPE = {"ROWS": 32, "COLS": 64, "num_warps": 4, "num_stages": 3}


def additive_attention(
    f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, mask: Mask, dropout: float, hardware: bool
) -> Tensor:
    """Gives `softmax(w · tanh(f_q + f_k)) v` with one tanh for each pair and feature; Θ(Q + K) memory.

    To that come the scores of some queries, a few million numbers however long the inputs are. Features and values are
    (B, H, length, width), w is (H, F). A query that sees no key gives zeros. `hardware` takes the GPU's approximate
    tanh. Autocast's type is used where that is on; sums are in float32.
    """
    return AdditiveAttention.apply(f_q, f_k, w, v, mask, dropout, hardware)  # pyright: ignore[reportReturnType]


class AdditiveAttention(torch.autograd.Function):
    """Keeps its inputs, the output and one number for each query; weights and tanh are computed anew."""

    @staticmethod
    def forward(
        ctx: Any, f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, mask: Mask, dropout: float, hardware: bool
    ) -> Tensor:
        B, H, Q, E = *f_q.shape[:3], v.shape[3]
        auto = f_q.is_cuda and torch.is_autocast_enabled("cuda")
        kind = torch.get_autocast_dtype("cuda") if auto else f_q.dtype
        ctx.kinds = tuple(x.dtype for x in (f_q, f_k, w, v))
        q, k, values = (x.to(kind).reshape(B * H, *x.shape[2:]).contiguous() for x in (f_q, f_k, v))
        w = w.to(torch.float32).contiguous()
        out = torch.empty(B * H, Q, E, dtype=kind, device=v.device)
        log_sum = torch.empty(B * H, Q, dtype=torch.float32, device=v.device)
        seed = torch.randint(2**31 - 1, (1,), device=v.device, dtype=torch.int32) if dropout else None
        look(q, k, w, values, out, log_sum, mask, seed, dropout, hardware)
        ctx.save_for_backward(q, k, w, values, out, log_sum, seed)
        ctx.mask, ctx.dropout, ctx.hardware = mask, dropout, hardware
        return out.view(B, H, Q, E)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        *saved, seed = ctx.saved_tensors
        q, w, out = saved[0], saved[2], saved[4]
        d_out = d_out.to(q.dtype).reshape(out.shape).contiguous()
        d_q, d_k, d_w, d_v = gradients(tuple(saved), d_out, ctx.mask, seed, ctx.dropout, ctx.hardware)
        lead = (-1, len(w))
        shaped = (d_q.unflatten(0, lead), d_k.unflatten(0, lead), d_w, d_v.unflatten(0, lead))
        return *(grad.to(kind) for grad, kind in zip(shaped, ctx.kinds, strict=True)), None, None, None


def look(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    v: Tensor,
    out: Tensor,
    log_sum: Tensor,
    mask: Mask,
    seed: Tensor | None,
    dropout: float,
    hardware: bool,
) -> None:
    """Writes what queries (N, Q, F) see among keys (N, K, F), and the logarithm of their softmax's denominator."""
    (N, Q, _), (K, E), H = q.shape, v.shape[1:], len(w)
    given, flags = rules = sight(mask, q.device)
    features = by_feature(q, k, w)
    for n, here in chunks(N, Q, K):
        scores = score(features, n, here, K, rules, hardware)
        _mix[triton.cdiv(here[2], SHAPE["ROWS"]), n](
            *(scores, v, out, log_sum, seed, *given, *here, H, Q, K, E, *scores.shape[1:], dropout),
            **flags,
            DROPS=dropout > 0.0,
            WIDE=max(16, triton.next_power_of_2(E)),
            EXACT="ieee" if q.dtype == torch.float32 else "tf32",
            **SHAPE,
        )


@triton.jit
def _mix(
    scores_at, v_at, out_at, log_sum_at, seed_at,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    n_first, start, size, H, Q, K, E, keys, step, dropout,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    DROPS: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    own = tl.program_id(1).to(tl.int64)
    n = own + n_first
    places = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rows, end = start + places, start + size
    low, high = interval(
        rows, n // H, end, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window, PADDED, ENDED, CAUSAL, WINDOWED
    )  # fmt: skip
    wide = tl.arange(0, WIDE)
    scores_at += own * keys * step
    v_at += n * K * E
    highest = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDE], tl.float32)
    for first in range(tl.min(low, 0) // COLS * COLS, tl.max(high, 0), COLS):
        cols = first + tl.arange(0, COLS)
        scores = tl.load(scores_at + cols[None, :] * step + places[:, None])
        allowed = (cols[None, :] >= low[:, None]) & (cols[None, :] < high[:, None])
        if CUT:
            allowed &= cut(
                rows[:, None], cols[None, :], n // H, n % H, end, K,
                allowed_at, allowed_b, allowed_h, allowed_q, allowed_k,
            )  # fmt: skip
        scores = tl.where(allowed, scores, -1e30)
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.where(allowed, tl.exp(scores - higher[:, None]), 0.0)
        shrink = tl.exp(highest - higher)
        total = total * shrink + tl.sum(p, 1)
        if DROPS:
            p = tl.where(kept(seed_at, n, rows[:, None] * K + cols[None, :], dropout), p / (1 - dropout), 0.0)
        place = v_at + cols.to(tl.int64)[:, None] * E + wide[None, :]
        v = tl.load(place, (cols < K)[:, None] & (wide < E)[None, :], 0.0)
        mixed = mixed * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision=EXACT)
        highest = higher
    nobody = total == 0.0
    total = tl.where(nobody, 1.0, total)
    # Of a query that sees no key the number is +∞, so that all its weights are zeros later on.
    tl.store(log_sum_at + n * Q + rows, tl.where(nobody, float("inf"), highest + tl.log(total)), rows < end)
    place = out_at + n * Q * E + rows.to(tl.int64)[:, None] * E + wide[None, :]
    out = (mixed / total[:, None]).to(out_at.dtype.element_ty)
    tl.store(place, out, (rows < end)[:, None] & (wide < E)[None, :])
