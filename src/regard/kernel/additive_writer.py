"""A GRU that looks by additive attention at each step, over all steps of some sentences: four calls a step each way."""

from typing import Any

import torch
from torch import Tensor

from regard.kernel.additive_few import collect_keys, look, look_backward
from regard.kernel.gru_gates import open_gates, open_gates_backward
from regard.kernel.linear import column_sums

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
