"""GRU gates, and a GRU decoder with additive attention over all its steps."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.autograd import once_differentiable
from regard.kernels.additive_short import attend, attend_backward, collect_keys
from regard.kernels.linear import column_sums
from regard.kernels.primitives import compute_dtype

BLOCK = 256


def gru_gates(of_input: Tensor, of_state: Tensor, state: Tensor) -> Tensor:
    """Return the new state from `W x + b`, `U h + c`, both (R, 3D) in PyTorch's order r, z, n, and h."""
    return _GRUGates.apply(of_input, of_state, state)  # pyright: ignore[reportReturnType]


class _GRUGates(torch.autograd.Function):
    """Saves the gates, the state before, and `U h + c`."""

    @staticmethod
    def forward(ctx: Any, of_input: Tensor, of_state: Tensor, state: Tensor) -> Tensor:
        ctx.state_dtype = state.dtype
        of_input, of_state = of_input.contiguous(), of_state.contiguous()
        state = state.to(of_input.dtype).contiguous()
        gates, after = torch.empty_like(of_input), torch.empty_like(state)
        _apply_gates(of_input, of_state, None, state, gates, after)
        ctx.save_for_backward(gates, of_state, state)
        return after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_after: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        gates, of_state, state = ctx.saved_tensors
        d_input, d_of_state = torch.empty_like(gates), torch.empty_like(of_state)
        carry = torch.zeros(state.shape, dtype=torch.float32, device=state.device)
        _apply_gates_backward(gates, of_state, None, state, d_after.contiguous(), carry, d_input, d_of_state)
        return d_input, d_of_state, carry.to(ctx.state_dtype)


def _apply_gates(
    of_input: Tensor, of_state: Tensor, bias: Tensor | None, state: Tensor, gates: Tensor, after: Tensor
) -> None:
    """Write the gates, which may overwrite `of_input`, and the new state; the bias belongs to `of_state`.

    `of_state` may be the first columns of something wider.
    """
    n, D = state.numel(), state.shape[-1]
    _gates_kernel[(triton.cdiv(n, BLOCK),)](
        *(of_input, of_state, bias, state, gates, after, of_state.stride(0), n, D),
        BLOCK=BLOCK,
    )


def _apply_gates_backward(
    gates: Tensor,
    of_state: Tensor,
    bias: Tensor | None,
    state: Tensor,
    d_after: Tensor,
    carry: Tensor,
    d_input: Tensor,
    d_of_state: Tensor,
) -> None:
    """Write the gradients of both products; `carry`, in float32, is added to the new state's and becomes the old's.

    What reaches the old state through `of_state` is not in it.
    """
    n, D = state.numel(), state.shape[-1]
    _gates_backward_kernel[(triton.cdiv(n, BLOCK),)](
        *(gates, of_state, bias, state, d_after, carry, d_input, d_of_state),
        *(of_state.stride(0), d_of_state.stride(0), n, D),
        BLOCK=BLOCK,
    )


@triton.jit
def _load_gates(ptr, D, inside):
    """Return the parts r, z and n of products, which lie D apart, in float32."""
    r = tl.load(ptr, inside, 0.0).to(tl.float32)
    z = tl.load(ptr + D, inside, 0.0).to(tl.float32)
    return r, z, tl.load(ptr + 2 * D, inside, 0.0).to(tl.float32)


@triton.jit
def _store_gates(ptr, r, z, n, D, inside):
    dtype = ptr.dtype.element_ty
    tl.store(ptr, r.to(dtype), inside)
    tl.store(ptr + D, z.to(dtype), inside)
    tl.store(ptr + 2 * D, n.to(dtype), inside)


@triton.jit
def _gates_kernel(
    of_input_ptr, of_state_ptr, bias_ptr, state_ptr, gates_ptr, after_ptr, stride, n, D, BLOCK: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    row, col = at // D, at % D
    r, z, new = _load_gates(of_input_ptr + (row * 3 * D + col), D, inside)
    r_state, z_state, old = _load_gates(of_state_ptr + (row * stride + col), D, inside)
    r += r_state
    z += z_state
    if bias_ptr is not None:
        r_bias, z_bias, bias = _load_gates(bias_ptr + col, D, inside)
        r += r_bias
        z += z_bias
        old += bias
    r = tl.sigmoid(r)
    z = tl.sigmoid(z)
    new = 2.0 * tl.sigmoid(2.0 * (new + r * old)) - 1.0
    state = tl.load(state_ptr + at, inside, 0.0).to(tl.float32)
    _store_gates(gates_ptr + (row * 3 * D + col), r, z, new, D, inside)
    tl.store(after_ptr + at, (new + z * (state - new)).to(gates_ptr.dtype.element_ty), inside)


@triton.jit
def _gates_backward_kernel(
    gates_ptr, of_state_ptr, bias_ptr, state_ptr, d_after_ptr, carry_ptr, d_input_ptr, d_of_state_ptr,
    stride, d_stride, n, D, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    row, col = at // D, at % D
    r, z, new = _load_gates(gates_ptr + (row * 3 * D + col), D, inside)
    old = tl.load(of_state_ptr + row * stride + col + 2 * D, inside, 0.0).to(tl.float32)
    if bias_ptr is not None:
        old += tl.load(bias_ptr + col + 2 * D, inside, 0.0).to(tl.float32)
    state = tl.load(state_ptr + at, inside, 0.0).to(tl.float32)
    d_after = tl.load(d_after_ptr + at, inside, 0.0).to(tl.float32) + tl.load(carry_ptr + at, inside, 0.0)
    d_new = d_after * (1.0 - z) * (1.0 - new * new)
    d_z = d_after * (state - new) * z * (1.0 - z)
    d_r = d_new * old * r * (1.0 - r)
    _store_gates(d_input_ptr + (row * 3 * D + col), d_r, d_z, d_new, D, inside)
    _store_gates(d_of_state_ptr + (row * d_stride + col), d_r, d_z, d_new * r, D, inside)
    tl.store(carry_ptr + at, d_after * z, inside)


Weights = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def attention_gru(
    inputs: Tensor, state: Tensor, f_k: Tensor, values: Tensor, lengths: Tensor | None, weights: Weights
) -> tuple[Tensor, Tensor]:
    """Return states and contexts of all steps, (T, B, D) and (T, B, E).

    At step t the state before it, mapped by W_q, attends to keys' features (B, S, F) and values (B, S, E) of the first
    `lengths[b]` tokens; `inputs[t] + W_context context` goes into the gates, (T, B, 3D). The weights are W_context
    (3D, E), W_state (3D, D) and its bias in PyTorch's order of gates, W_q (D, F) and w_v (F). Autocast's type is used
    where that is on.
    """
    return _AttentionGRU.apply(inputs, state, f_k, values, lengths, *weights)  # pyright: ignore[reportReturnType]


class _AttentionGRU(torch.autograd.Function):
    """Saves states, contexts, gates and attention of all steps; gradients of shared weights are taken at the end.

    A query and the gates' share of a state are one product, `state [W_state; W_q]ᵀ`, called `mapped` below.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        state: Tensor,
        f_k: Tensor,
        values: Tensor,
        lengths: Tensor | None,
        w_context: Tensor,
        w_state: Tensor,
        b_state: Tensor,
        w_q: Tensor,
        w_v: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.dtypes = tuple(x.dtype for x in (inputs, state, f_k, values, w_context, w_state, b_state, w_q, w_v))
        dtype = compute_dtype(inputs)
        (T, B, _), (S, E), (D, F) = inputs.shape, values.shape[1:], w_q.shape
        w_map, w_context = torch.cat([w_state, w_q.T]).to(dtype), w_context.to(dtype)
        k, v = (x.to(dtype).contiguous() for x in (f_k, values))
        gates = inputs.to(dtype, memory_format=torch.contiguous_format, copy=True)
        states, contexts, mapped = (inputs.new_empty(n, B, width, dtype=dtype) for n, width in _shapes(T, D, E, F))
        p = inputs.new_empty(T, B, S, dtype=torch.float32)
        states[0] = state
        for t in range(T):
            torch.mm(states[t], w_map.T, out=mapped[t])
            attend(mapped[t][:, None, 3 * D :], k, w_v[None], v, lengths, contexts[t][:, None], p[t][:, None])
            gates[t].addmm_(contexts[t], w_context.T)
            _apply_gates(gates[t], mapped[t], b_state, states[t], gates[t], states[t + 1])
        ctx.save_for_backward(k, v, w_map, w_context, b_state, w_v, gates, states, contexts, mapped, p)
        return states[1:], contexts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, d_contexts: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        k, v, w_map, w_context, b_state, w_v, gates, states, contexts, mapped, p = ctx.saved_tensors
        (T, B, D), dtype = contexts.shape[:2] + states.shape[2:], k.dtype
        # Copies: later steps add to them.
        d_after, d_context = (
            x.to(dtype, memory_format=torch.contiguous_format, copy=True) for x in (d_states, d_contexts)
        )
        d_inputs, d_mapped, d_scores = (torch.empty_like(x) for x in (gates, mapped, p))
        carry = torch.zeros(B, D, dtype=torch.float32, device=k.device)
        for t in reversed(range(T)):
            _apply_gates_backward(gates[t], mapped[t], b_state, states[t], d_after[t], carry, d_inputs[t], d_mapped[t])
            d_context[t].addmm_(d_inputs[t], w_context)
            q, d_q = (x[t][:, None, 3 * D :] for x in (mapped, d_mapped))
            attend_backward(q, k, w_v[None], v, p[t][:, None], d_context[t][:, None], d_scores[t][:, None], d_q)
            if t > 0:
                d_after[t - 1].addmm_(d_mapped[t], w_map)
        d_k, d_w_v = collect_keys(mapped[:, :, 3 * D :].transpose(0, 1), k, w_v[None], d_scores.transpose(0, 1))
        d_v = torch.bmm(p.to(dtype).permute(1, 2, 0), d_context.transpose(0, 1))
        by_rows = d_mapped.flatten(0, 1)
        d_w_map = by_rows.T @ states[:T].flatten(0, 1)
        d_w_context = d_inputs.flatten(0, 1).T @ contexts.flatten(0, 1)
        grads = (d_inputs, carry + d_mapped[0] @ w_map, d_k, d_v, d_w_context)
        grads += (d_w_map[: 3 * D], column_sums(by_rows[:, : 3 * D]), d_w_map[3 * D :].T, d_w_v[0])
        d_inputs, d_state, d_k, d_v, *d_weights = (
            grad.to(dtype) for grad, dtype in zip(grads, ctx.dtypes, strict=True)
        )
        return d_inputs, d_state, d_k, d_v, None, *d_weights


def _shapes(T: int, D: int, E: int, F: int) -> tuple[tuple[int, int], ...]:
    """Return steps and widths of states (one more than there are steps), contexts and mapped states."""
    return (T + 1, D), (T, E), (T, 3 * D + F)
