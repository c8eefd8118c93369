"""Additive attention in blocks with a running softmax: no tensor of size Q · K · F, forward or backward.

With `r = 1 / (1 + e^{2(f_q + f_k)})` we have `tanh(f_q + f_k) = 1 − 2r`, so the score is `Σw − 2 w·r`, and Σw cancels
in the softmax. `e^{2(f_q + f_k)} = e^{2f_q} · e^{2f_k}` needs one exponential for each query and each key instead of a
tanh for each pair: on a CPU a pair then costs a multiply-add and a division. The derivative `1 − tanh²` is `4(r − r²)`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.autograd import once_differentiable
from regard.mask import Mask

# Elements of the one live tile: small enough for a CPU's cache, large enough to fill a GPU.
TILE_ELEMENTS = {"cpu": 2**20, "cuda": 2**25}
# Queries from which on each power of a key is used often enough to be worth computing.
ENOUGH = 5
# e^{2 · limit} is far from the type's largest number; pairs with a feature beyond it take the sigmoid itself.
EXPONENT_LIMIT = {torch.float32: 40.0, torch.float64: 300.0}


@dataclass(frozen=True, eq=False)
class Problem:
    """One call, batch and heads folded into N."""

    f_q: Tensor  # (N, Q, F), in float32 or float64
    f_k: Tensor  # (N, K, F)
    w: Tensor  # (N, F)
    v: Tensor  # (N, K, E)
    bias: Tensor | None  # (#B, #H, #Q, #K)
    mask: Mask
    heads: tuple[int, int]  # B, H
    dropout: float
    seed: int
    powers: tuple[Tensor, Tensor] | None  # e^{2f} of queries and of keys, where pairs multiply them
    large: tuple[Tensor, Tensor] | None  # which queries (N, Q) and keys (N, K) are too large for that

    def groups(self) -> Iterator[tuple[slice, range]]:
        """Iterate over sequences and rows, a tile at a time."""
        N, Q, _ = self.f_q.shape
        size = TILE_ELEMENTS["cuda" if self.f_q.is_cuda else "cpu"]
        row = len(next(self.key_blocks(), range(1))) * self.f_q.shape[-1]
        n_rows = max(1, min(Q, size // row))
        n_seqs = max(1, min(N, size // (row * n_rows)))
        for n in range(0, N, n_seqs):
            for start in range(0, Q, n_rows):
                yield slice(n, n + n_seqs), range(start, min(start + n_rows, Q))

    def key_blocks(self) -> Iterator[range]:
        """Iterate over the keys, at most 512 at a time: a row of tiles then still fits the cache."""
        K = self.f_k.shape[1]
        for start in range(0, K, 512):
            yield range(start, min(start + 512, K))

    def generator(self) -> torch.Generator | None:
        """Return the source of dropout's random numbers, which are the same in forward and backward."""
        return torch.Generator(self.f_q.device).manual_seed(self.seed) if self.dropout else None

    def dropout_factors(self, p: Tensor, generator: torch.Generator | None) -> Tensor | None:
        """Draw 0 for each weight to drop and else the factor that keeps the mean; None without dropout."""
        if generator is None:
            return None
        keep = torch.rand(p.shape, generator=generator, device=p.device, dtype=p.dtype) >= self.dropout
        return keep.to(p.dtype) / (1.0 - self.dropout)

    def gates(self, n: slice, rows: range, keys: range) -> Tensor:
        """Return `r = 1 / (1 + e^{2(f_q + f_k)})` for one tile, (n, q, k, F)."""
        at_q, at_k = (n, slice(rows.start, rows.stop), None), (n, None, slice(keys.start, keys.stop))
        if self.powers is not None:
            e_q, e_k = self.powers[0][at_q], self.powers[1][at_k]
            gates = torch.addcmul(e_q.new_ones(()), e_q, e_k).reciprocal_()
            if self.large is None:
                return gates
            # Pair by pair, so that no pair's last bit depends on how large another one is.
            large = self.large[0][at_q] | self.large[1][at_k]
            return torch.where(large[..., None], self._exact_gates(at_q, at_k), gates)
        return self._exact_gates(at_q, at_k)

    def _exact_gates(self, at_q: tuple, at_k: tuple) -> Tensor:
        return torch.add(self.f_q[at_q], self.f_k[at_k]).mul_(-2.0).sigmoid_()

    def scores(self, gates: Tensor, n: slice, rows: range, keys: range) -> Tensor:
        """Return the tile's scores less Σw, with bias, −∞ where masked, (n, q, k)."""
        N, q, k, F = gates.shape
        w = self.w[n, None, None].expand(N, q, 1, F).reshape(N * q, 1, F)
        scores = torch.bmm(w, gates.view(N * q, k, F).transpose(1, 2)).mul_(-2.0).view(N, q, k)
        if self.bias is not None:
            scores += self._tile(self.bias, n, rows, keys)
        allowed = self.mask.tile(rows, keys, gates.device)
        return scores if allowed is None else scores.masked_fill_(~self._folded(allowed)[n], float("-inf"))

    def _tile(self, bias: Tensor, n: slice, rows: range, keys: range) -> Tensor:
        for axis, span in ((2, rows), (3, keys)):
            bias = bias if bias.shape[axis] == 1 else bias.narrow(axis, span.start, len(span))
        return self._folded(bias)[n]

    def _folded(self, x: Tensor) -> Tensor:
        return x.expand(*self.heads, *x.shape[2:]).reshape(-1, *x.shape[2:])


class AdditiveBlocks(torch.autograd.Function):
    """`softmax(w · tanh(f_q + f_k) + bias) v`, its softmax running over blocks of keys (arXiv:1805.02867)."""

    @staticmethod
    def forward(
        ctx: Any,
        f_q: Tensor,
        f_k: Tensor,
        w: Tensor,
        v: Tensor,
        bias: Tensor | None,
        mask: Mask,
        dropout: float,
    ) -> Tensor:
        B, H, Q, _ = f_q.shape
        # Drawn from PyTorch's own generator, so that its state alone repeats a run.
        seed = int(torch.randint(2**62, ())) if dropout else 0
        call = make_problem(f_q, f_k, w, v, bias, mask, dropout, seed)
        out = call.v.new_zeros(B * H, Q, v.shape[3])
        log_sum = call.v.new_zeros(B * H, Q, 1)
        generator = call.generator()
        for n, rows in call.groups():
            at = (n, slice(rows.start, rows.stop))
            out[at], log_sum[at] = attend_rows(call, n, rows, generator)
        ctx.save_for_backward(f_q, f_k, w, v, bias, out, log_sum)
        ctx.rest = (mask, dropout, seed)
        return out.view(B, H, Q, v.shape[3]).to(v.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        f_q, f_k, w, v, bias, out, log_sum = ctx.saved_tensors
        call = make_problem(f_q, f_k, w, v, bias, *ctx.rest)
        grads = Gradients(call)
        d_out = d_out.to(out.dtype).reshape(out.shape)
        delta = (d_out * out).sum(dim=-1, keepdim=True)
        generator = call.generator()
        for n, rows in call.groups():
            at = (n, slice(rows.start, rows.stop))
            grads.collect(n, rows, log_sum[at], d_out[at], delta[at], generator)
        return *grads.results(f_q, f_k, w, v, bias), None, None


def make_problem(
    f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, bias: Tensor | None, mask: Mask, dropout: float, seed: int
) -> Problem:
    """Fold batch and heads, and choose the type and the formula of the tiles."""
    B, H = f_q.shape[:2]
    exact = torch.promote_types(f_q.dtype, torch.float32)
    f_q, f_k, v = (x.to(exact).reshape(B * H, *x.shape[2:]) for x in (f_q, f_k, v))
    w = w.to(exact).expand(B, *w.shape).reshape(B * H, w.shape[-1])
    bias = None if bias is None else bias.to(exact)
    powers = large = None
    # A GPU has a tanh of its own, and reading the numbers would make it wait.
    if not f_q.is_cuda and f_q.shape[1] >= ENOUGH:
        limit = EXPONENT_LIMIT[exact]
        powers = (torch.exp(2.0 * f_q.clamp(-limit, limit)), torch.exp(2.0 * f_k.clamp(-limit, limit)))
        large = ((f_q.abs() > limit).any(dim=-1), (f_k.abs() > limit).any(dim=-1))
        large = large if large[0].any() or large[1].any() else None
    return Problem(f_q, f_k, w, v, bias, mask, (B, H), dropout, seed, powers, large)


def attend_rows(call: Problem, n: slice, rows: range, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Return the output of some rows and the logarithm of their softmax's denominator."""
    lead = call.f_q[n, rows.start : rows.stop]
    highest = lead.new_full((*lead.shape[:2], 1), float("-inf"))
    total, mixed = torch.zeros_like(highest), lead.new_zeros(*lead.shape[:2], call.v.shape[2])
    for keys in call.key_blocks():
        if call.mask.hides(rows, keys):
            continue
        scores = call.scores(call.gates(n, rows, keys), n, rows, keys)
        before, highest = highest, torch.maximum(highest, scores.amax(dim=-1, keepdim=True))
        base = highest.masked_fill(highest == float("-inf"), 0.0)  # a row without an allowed key so far
        p = torch.exp(scores - base)
        shrink = torch.exp(before - base)
        total = total * shrink + p.sum(dim=-1, keepdim=True)
        factors = call.dropout_factors(p, generator)
        mixed = mixed * shrink + torch.bmm(p if factors is None else p * factors, call.v[n, keys.start : keys.stop])
    empty = total == 0.0
    total = total.masked_fill(empty, 1.0)
    return mixed / total, highest.masked_fill(empty, 0.0) + torch.log(total)


class Gradients:
    """Gradients that the backward pass adds up tile by tile."""

    def __init__(self, call: Problem):
        self.call = call
        self.f_q, self.f_k, self.v = (torch.zeros_like(x) for x in (call.f_q, call.f_k, call.v))
        self.w = torch.zeros_like(call.w)
        self.bias = None if call.bias is None else call.bias.new_zeros(*call.heads, *call.bias.shape[2:])

    def collect(
        self, n: slice, rows: range, log_sum: Tensor, d_out: Tensor, delta: Tensor, generator: torch.Generator | None
    ) -> None:
        """Add what some rows contribute."""
        for keys in self.call.key_blocks():
            if self.call.mask.hides(rows, keys):
                continue
            gates = self.call.gates(n, rows, keys)
            p = torch.exp(self.call.scores(gates, n, rows, keys) - log_sum)
            factors = self.call.dropout_factors(p, generator)
            at = (n, slice(keys.start, keys.stop))
            self.v[at] += torch.bmm((p if factors is None else p * factors).transpose(1, 2), d_out)
            d_p = torch.bmm(d_out, self.call.v[at].transpose(1, 2))
            d_scores = p * ((d_p if factors is None else d_p * factors) - delta)
            self._collect_bias(d_scores, n, rows, keys)
            self._collect_features(gates, d_scores, (n, slice(rows.start, rows.stop)), at)

    def _collect_features(
        self, gates: Tensor, d_scores: Tensor, at_q: tuple[slice, slice], at_k: tuple[slice, slice]
    ) -> None:
        N, q, k, F = gates.shape
        self.w[at_q[0]] -= 2.0 * torch.bmm(d_scores.reshape(N, 1, q * k), gates.view(N, q * k, F))[:, 0]
        slope = gates.addcmul_(gates, gates, value=-1.0).mul_(d_scores[..., None])  # the tile is overwritten
        self.f_q[at_q] += slope.sum(dim=2)
        self.f_k[at_k] += slope.sum(dim=1)

    def _collect_bias(self, d_scores: Tensor, n: slice, rows: range, keys: range) -> None:
        if self.bias is None:
            return
        d_bias = self.bias.view(-1, *self.bias.shape[2:])[n]
        for axis, span in ((1, rows), (2, keys)):
            if d_bias.shape[axis] == 1:
                d_scores = d_scores.sum(dim=axis, keepdim=True)
            else:
                d_bias = d_bias.narrow(axis, span.start, len(span))
        d_bias += d_scores

    def results(self, f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, bias: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the sums in the shapes and types of the inputs."""
        slope = 4.0 * self.call.w[:, None]
        d_bias = None if bias is None or self.bias is None else self.bias.sum_to_size(bias.shape).to(bias.dtype)
        return (
            (self.f_q * slope).view(f_q.shape).to(f_q.dtype),
            (self.f_k * slope).view(f_k.shape).to(f_k.dtype),
            self.w.view(*self.call.heads, w.shape[-1]).sum(dim=0).to(w.dtype),
            self.v.view(v.shape).to(v.dtype),
            d_bias,
        )
