"""GRU gates, attention GRU over all steps."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.additive_short import collect_keys, look, look_backward
from regard.kernels.linear import column_sums

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


Maps = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def additive_writer(
    words: Tensor, state: Tensor, f_k: Tensor, values: Tensor, lengths: Tensor | None, maps: Maps
) -> tuple[Tensor, Tensor]:
    """Gives states and contexts of all steps, (T, B, D) and (T, B, E).

    At step t the state before it, mapped by W_q, looks at keys' features (B, S, F) and values (B, S, E) of the first
    `lengths[b]` words; `words[t] + W_context context` goes into the gates, (T, B, 3D). The maps are W_context (3D, E),
    W_state (3D, D) and its bias in PyTorch's order of gates, W_q (D, F) and w_v (F). Autocast's type is used where
    that is on.
    """
    return AdditiveWriter.apply(words, state, f_k, values, lengths, *maps)  # pyright: ignore[reportReturnType]


class AdditiveWriter(torch.autograd.Function):
    """Keeps states, contexts, gates and weights of all steps; gradients of what all steps share are taken at the end.

    A query and what the gates ask of a state are one product, `state [W_state; W_q]ᵀ`, called `asked` below.
    """

    @staticmethod
    def forward(
        ctx: Any,
        words: Tensor,
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
        ctx.kinds = tuple(x.dtype for x in (words, state, f_k, values, w_context, w_state, b_state, w_q, w_v))
        kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else words.dtype
        (T, B, _), (S, E), (D, F) = words.shape, values.shape[1:], w_q.shape
        w_ask, w_context = torch.cat([w_state, w_q.T]).to(kind), w_context.to(kind)
        k, v = (x.to(kind).contiguous() for x in (f_k, values))
        gates = words.to(kind, memory_format=torch.contiguous_format, copy=True)
        states, contexts, asked = (words.new_empty(n, B, width, dtype=kind) for n, width in _rooms(T, D, E, F))
        p = words.new_empty(T, B, S, dtype=torch.float32)
        states[0] = state
        for t in range(T):
            torch.mm(states[t], w_ask.T, out=asked[t])
            look(asked[t][:, None, 3 * D :], k, w_v[None], v, lengths, contexts[t][:, None], p[t][:, None])
            gates[t].addmm_(contexts[t], w_context.T)
            open_gates(gates[t], asked[t], b_state, states[t], gates[t], states[t + 1])
        ctx.save_for_backward(k, v, w_ask, w_context, b_state, w_v, gates, states, contexts, asked, p)
        return states[1:], contexts

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_states: Tensor, d_contexts: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        k, v, w_ask, w_context, b_state, w_v, gates, states, contexts, asked, p = ctx.saved_tensors
        (T, B, D), kind = contexts.shape[:2] + states.shape[2:], k.dtype
        # What later steps add to the gradients goes into copies of what came from outside.
        d_after, d_seen = (x.to(kind, memory_format=torch.contiguous_format, copy=True) for x in (d_states, d_contexts))
        d_words, d_asked, d_scores = (torch.empty_like(x) for x in (gates, asked, p))
        carry = torch.zeros(B, D, dtype=torch.float32, device=k.device)
        for t in reversed(range(T)):
            open_gates_backward(gates[t], asked[t], b_state, states[t], d_after[t], carry, d_words[t], d_asked[t])
            d_seen[t].addmm_(d_words[t], w_context)
            q, d_q = (x[t][:, None, 3 * D :] for x in (asked, d_asked))
            look_backward(q, k, w_v[None], v, p[t][:, None], d_seen[t][:, None], d_scores[t][:, None], d_q)
            if t > 0:
                d_after[t - 1].addmm_(d_asked[t], w_ask)
        d_k, d_w_v = collect_keys(asked[:, :, 3 * D :].transpose(0, 1), k, w_v[None], d_scores.transpose(0, 1))
        d_v = torch.bmm(p.to(kind).permute(1, 2, 0), d_seen.transpose(0, 1))
        by_rows = d_asked.flatten(0, 1)
        d_w_ask = by_rows.T @ states[:T].flatten(0, 1)
        d_w_context = d_words.flatten(0, 1).T @ contexts.flatten(0, 1)
        grads = (d_words, carry + d_asked[0] @ w_ask, d_k, d_v, d_w_context)
        grads += (d_w_ask[: 3 * D], column_sums(by_rows[:, : 3 * D]), d_w_ask[3 * D :].T, d_w_v[0])
        d_words, d_state, d_k, d_v, *d_maps = (grad.to(kind) for grad, kind in zip(grads, ctx.kinds, strict=True))
        return d_words, d_state, d_k, d_v, None, *d_maps


def _rooms(T: int, D: int, E: int, F: int) -> tuple[tuple[int, int], ...]:
    """Gives the steps and widths of states (one more than there are steps), contexts and what is asked of states."""
    return (T + 1, D), (T, E), (T, 3 * D + F)
