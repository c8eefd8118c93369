"""The gates of a GRU between its two matrix products, in one pass over memory."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256


def gru_gates(of_input: Tensor, of_state: Tensor, state: Tensor) -> Tensor:
    """Gives the new state from `W x + b`, `U h + c`, both (R, 3D) in PyTorch's order r, z, n, and h."""
    return GRUGates.apply(of_input, of_state, state)  # pyright: ignore[reportReturnType]


class GRUGates(torch.autograd.Function):
    """Keeps the gates, the state before, and what came of it."""

    @staticmethod
    def forward(ctx: Any, of_input: Tensor, of_state: Tensor, state: Tensor) -> Tensor:
        ctx.state_type = state.dtype
        of_input, of_state = of_input.contiguous(), of_state.contiguous()
        state = state.to(of_input.dtype).contiguous()
        gates, after = torch.empty_like(of_input), torch.empty_like(state)
        open_gates(of_input, of_state, None, state, gates, after)
        ctx.save_for_backward(gates, of_state, state)
        return after

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_after: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        gates, of_state, state = ctx.saved_tensors
        d_input, d_of_state = torch.empty_like(gates), torch.empty_like(of_state)
        carry = torch.zeros(state.shape, dtype=torch.float32, device=state.device)
        open_gates_backward(gates, of_state, None, state, d_after.contiguous(), carry, d_input, d_of_state)
        return d_input, d_of_state, carry.to(ctx.state_type)


def open_gates(
    of_input: Tensor, of_state: Tensor, bias: Tensor | None, state: Tensor, gates: Tensor, after: Tensor
) -> None:
    """Writes the gates, which may take the place of `of_input`, and the new state; the bias belongs to `of_state`.

    `of_state` may be the first columns of something wider.
    """
    n, D = state.numel(), state.shape[-1]
    _open[(triton.cdiv(n, BLOCK),)](
        *(of_input, of_state, bias, state, gates, after, of_state.stride(0), n, D),
        BLOCK=BLOCK,
        BIASED=bias is not None,
    )


def open_gates_backward(
    gates: Tensor,
    of_state: Tensor,
    bias: Tensor | None,
    state: Tensor,
    d_after: Tensor,
    carry: Tensor,
    d_input: Tensor,
    d_of_state: Tensor,
) -> None:
    """Writes the gradients of both products; `carry`, in float32, is added to the new state's and becomes the old's.

    What reaches the old state through `of_state` is not in it.
    """
    n, D = state.numel(), state.shape[-1]
    _open_backward[(triton.cdiv(n, BLOCK),)](
        *(gates, of_state, bias, state, d_after, carry, d_input, d_of_state),
        *(of_state.stride(0), d_of_state.stride(0), n, D),
        BLOCK=BLOCK,
        BIASED=bias is not None,
    )


@triton.jit
def _open(
    of_input_at, of_state_at, bias_at, state_at, gates_at, after_at, stride, n, D,
    BLOCK: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    row, col = at // D, at % D
    given, asked = row * 3 * D + col, row * stride + col
    r = tl.load(of_input_at + given, inside, 0.0).to(tl.float32)
    z = tl.load(of_input_at + given + D, inside, 0.0).to(tl.float32)
    new = tl.load(of_input_at + given + 2 * D, inside, 0.0).to(tl.float32)
    r += tl.load(of_state_at + asked, inside, 0.0).to(tl.float32)
    z += tl.load(of_state_at + asked + D, inside, 0.0).to(tl.float32)
    old = tl.load(of_state_at + asked + 2 * D, inside, 0.0).to(tl.float32)
    if BIASED:
        r += tl.load(bias_at + col, inside, 0.0).to(tl.float32)
        z += tl.load(bias_at + col + D, inside, 0.0).to(tl.float32)
        old += tl.load(bias_at + col + 2 * D, inside, 0.0).to(tl.float32)
    r = tl.sigmoid(r)
    z = tl.sigmoid(z)
    new = 2.0 * tl.sigmoid(2.0 * (new + r * old)) - 1.0
    state = tl.load(state_at + at, inside, 0.0).to(tl.float32)
    kind = gates_at.dtype.element_ty
    tl.store(gates_at + given, r.to(kind), inside)
    tl.store(gates_at + given + D, z.to(kind), inside)
    tl.store(gates_at + given + 2 * D, new.to(kind), inside)
    tl.store(after_at + at, (new + z * (state - new)).to(kind), inside)


@triton.jit
def _open_backward(
    gates_at, of_state_at, bias_at, state_at, d_after_at, carry_at, d_input_at, d_of_state_at, stride, d_stride, n, D,
    BLOCK: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    row, col = at // D, at % D
    given, asked = row * 3 * D + col, row * d_stride + col
    r = tl.load(gates_at + given, inside, 0.0).to(tl.float32)
    z = tl.load(gates_at + given + D, inside, 0.0).to(tl.float32)
    new = tl.load(gates_at + given + 2 * D, inside, 0.0).to(tl.float32)
    old = tl.load(of_state_at + row * stride + col + 2 * D, inside, 0.0).to(tl.float32)
    if BIASED:
        old += tl.load(bias_at + col + 2 * D, inside, 0.0).to(tl.float32)
    state = tl.load(state_at + at, inside, 0.0).to(tl.float32)
    d_after = tl.load(d_after_at + at, inside, 0.0).to(tl.float32) + tl.load(carry_at + at, inside, 0.0)
    d_new = d_after * (1.0 - z) * (1.0 - new * new)
    d_z = d_after * (state - new) * z * (1.0 - z)
    d_r = d_new * old * r * (1.0 - r)
    kind = d_input_at.dtype.element_ty
    tl.store(d_input_at + given, d_r.to(kind), inside)
    tl.store(d_input_at + given + D, d_z.to(kind), inside)
    tl.store(d_input_at + given + 2 * D, d_new.to(kind), inside)
    tl.store(d_of_state_at + asked, d_r.to(kind), inside)
    tl.store(d_of_state_at + asked + D, d_z.to(kind), inside)
    tl.store(d_of_state_at + asked + 2 * D, (d_new * r).to(kind), inside)
    tl.store(carry_at + at, d_after * z, inside)
