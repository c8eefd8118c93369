"""Queries and keys of a first layer as sums: of the token, of its position, and of what all have in common."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.model.layers import Embedding
from regard.model.multihead import MultiHeadAttention, split_heads
from regard.model.norm import BatchNorm, LayerNorm, Residual, RMSNorm
from regard.shapes import Float, Int
from regard.trace.decompose import Parts

# An affine map of one stream: a part of it goes in by the first function, the second is what all have in common.
Affine = tuple[Callable[[Tensor], Tensor], Tensor]


def first_parts(
    embedding: Embedding,
    residual: Residual,
    heads: MultiHeadAttention,
    ids: Int[Tensor, "1 T"],
    positions: Int[Tensor, "1 T"],
) -> Parts | None:
    """Split queries and keys of the first layer into token, position and constants, exactly.

    The position's part of the stream is what a token becomes that is all zeros. A norm before the layer is affine once
    its own mean and deviation are known, which are those of the whole stream; None where a norm is not known to be, or
    where nothing is added to the tokens.
    """
    words = embedding.words(ids)
    x = embedding.position.embed(words, positions)
    if x is words:
        return None
    codes = embedding.position.embed(torch.zeros_like(words), positions).double()
    streams = torch.cat([x.double() - codes, codes, torch.zeros_like(codes)])  # (3, T, D)
    for norm in (embedding.norm, residual.norm if residual.norm_first else None):
        if norm is None:
            continue
        make = AFFINE.get(type(norm))
        if make is None:
            return None
        through, common = make(norm, streams.sum(0, keepdim=True))
        streams = through(streams)
        streams[2] += common
    kind = torch.promote_types(x.dtype, torch.float32)
    q, k = (
        heads.position.rotate(split_heads(_project(streams, linear), heads.n_heads), positions).to("cpu", kind)
        for linear in (heads.w_q, heads.w_k)
    )
    return Parts(q, k)


def _project(streams: Float[Tensor, "3 T D"], linear: nn.Linear) -> Float[Tensor, "3 T D"]:
    """Project the parts; the projection's own bias goes with what all have in common."""
    out = streams @ linear.weight.double().T
    if linear.bias is not None:
        out[2] += linear.bias.double()
    return out


def _layer(norm: Any, x: Float[Tensor, "1 T D"]) -> Affine:
    scale = norm.weight.double() * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + norm.eps)
    return (lambda part: (part - part.mean(-1, keepdim=True)) * scale), norm.bias.double()


def _rms(norm: Any, x: Float[Tensor, "1 T D"]) -> Affine:
    eps = torch.finfo(norm.weight.dtype).eps if norm.eps is None else norm.eps
    scale = norm.weight.double() * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return (lambda part: part * scale), x.new_zeros(x.shape[-1])


def _batch(norm: Any, x: Float[Tensor, "1 T D"]) -> Affine:
    scale = norm.weight.double() * torch.rsqrt(norm.variance.double() + norm.eps)
    return (lambda part: part * scale), norm.bias.double() - norm.mean.double() * scale


# By the very class: another norm may do anything.
AFFINE: dict[type, Callable[[Any, Tensor], Affine]] = {LayerNorm: _layer, RMSNorm: _rms, BatchNorm: _batch}
