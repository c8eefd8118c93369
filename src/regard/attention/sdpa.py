"""Dot-product attention on PyTorch's fused kernels, told about masks in the form that keeps them fused."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.attention import SDPBackend

from regard.mask import Mask
from regard.position.contract import OffsetBias

# Queries or keys, and features of a head, that fit into the registers of one program on a GPU.
SHORT, WIDEST = 64, 128
WIDEST_FLOAT32 = 64  # of a head of a short sequence: wider ones take minutes to compile
# Queries and keys from which on a bias is worth a kernel of its own.
LONG = 64


@dataclass(frozen=True, eq=False)
class KernelCall:
    """What one call of the kernel gets, and which rows of its output are to be zeros."""

    q: Float[Tensor, "B H Q W"]
    k: Float[Tensor, "B H K W"]
    v: Float[Tensor, "B H K W"]
    attn_mask: Tensor | None
    is_causal: bool
    nobody: Bool[Tensor, "#B #H #Q 1"] | None

    def kernel(self, dropout: float, scale: float) -> str:
        """Names the kernel that PyTorch picks for this call."""
        choice = torch._fused_sdp_choice(self.q, self.k, self.v, self.attn_mask, dropout, self.is_causal, scale=scale)  # pyright: ignore[reportPrivateImportUsage]
        return SDPBackend(choice).name.lower().removesuffix("_attention")


def fused_attention(
    q: Float[Tensor, "B H Q E"],
    k: Float[Tensor, "B H K E"],
    v: Float[Tensor, "B H K E3"],
    mask: Mask,
    bias: Float[Tensor, "#B #H #Q #K"] | OffsetBias | None,
    scale: float,
    dropout: float,
) -> Float[Tensor, "B H Q E3"]:
    """Gives `softmax(scale · q kᵀ + bias) v` without building the weights where a fused kernel exists.

    Flash attention (Dao et al. 2022, arXiv:2205.14135): Θ(QKE) time, Θ(Q + K) extra memory. A bias that itself wants a
    gradient, and dropout on the CPU, have no fused kernel in PyTorch and take its materialised one; a bias by offset
    has one of ours on a GPU.
    """
    if isinstance(bias, OffsetBias):
        if is_relative(q, k, v):
            from regard.kernels.relative_forward import relative_attention  # only there is Triton installed

            kind = _computed_in(q)
            return relative_attention(q.to(kind), k.to(kind), v.to(kind), mask, bias, scale, dropout)
        bias = bias.materialise(q.dtype)
    if k.shape[2] == 0:
        return (q @ k.transpose(-1, -2)) @ v  # no key at all: zeros, for which no kernel need be asked
    if is_short(q, k, v, mask, bias, dropout):
        from regard.kernels.attention_short import short_attention  # only there is Triton installed

        kind = _computed_in(q)
        return short_attention(q.to(kind), k.to(kind), v.to(kind), mask.key_lengths, mask.causal, scale)
    call = prepare(q, k, v, mask, bias)
    out = F.scaled_dot_product_attention(call.q, call.k, call.v, call.attn_mask, dropout, call.is_causal, scale=scale)[
        ..., : v.shape[3]
    ]
    return out if call.nobody is None else out.masked_fill(call.nobody, 0.0)


def is_short(q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, dropout: float) -> bool:
    """Tells whether our own kernel for short sequences on a GPU takes this call."""
    if not q.is_cuda or bias is not None or dropout > 0.0 or q.dtype.itemsize > 4 or 0 in q.shape:
        return False
    lengths, widest = mask.key_lengths, WIDEST if _computed_in(q).itemsize < 4 else WIDEST_FLOAT32
    plain = mask.query_lengths is None and mask.window is None and mask.allowed is None and mask.offset == 0
    return (
        plain
        and (lengths is None or lengths.dim() == 1)
        and max(q.shape[2], k.shape[2]) <= SHORT
        and max(q.shape[3], v.shape[3]) <= widest
    )


def _computed_in(q: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else q.dtype


def is_relative(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Tells whether our own kernel for a bias by offset takes this call: long inputs in half precision on a GPU.

    It adds up gradients in any order, so it stands back where only one order is wanted.
    """
    if not q.is_cuda or _computed_in(q).itemsize != 2 or 0 in q.shape or torch.are_deterministic_algorithms_enabled():
        return False
    return min(q.shape[2], k.shape[2]) >= LONG and max(q.shape[3], v.shape[3]) <= WIDEST


def prepare(q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None) -> KernelCall:
    """Puts mask, bias and widths into the form in which the kernels take them."""
    Q, K = q.shape[2], k.shape[2]
    q, k, v = _one_width(q, k, v)
    if bias is None and _is_causal_alone(mask):
        nobody = None if mask.query_lengths is None else _padded_rows(mask.query_lengths, Q)
        return KernelCall(q, k, v, None, mask.bounds_future(K - 1), nobody)
    allowed = mask.tile(range(Q), range(K), q.device)
    if allowed is None:
        return KernelCall(q, k, v, None if bias is None else bias.to(q.dtype), False, None)
    # Kernels differ in what they make of a row without keys (zeros, NaN, a mean), so none ever sees one.
    nobody = None if mask.no_empty_rows else ~allowed.any(dim=-1, keepdim=True)
    allowed = allowed if nobody is None else allowed | nobody
    if bias is not None:
        allowed = bias.to(q.dtype).masked_fill(~allowed, float("-inf"))
    return KernelCall(q, k, v, allowed, False, nobody)


def _is_causal_alone(mask: Mask) -> bool:
    """Tells whether PyTorch's `is_causal` says all: the key rule then follows from the query rule, or is absent."""
    same_padding = mask.key_lengths is mask.query_lengths
    return mask.causal and mask.offset == 0 and same_padding and mask.window is None and mask.allowed is None


def _padded_rows(lengths: Tensor, Q: int) -> Tensor:
    return (torch.arange(Q, device=lengths.device) >= lengths[:, None])[:, None, :, None]  # (B, 1, Q, 1)


def _one_width(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Widens with zeros to one common width, which the flash kernels ask for; zeros change no product."""
    width = max(q.shape[-1], v.shape[-1])
    q, k, v = (x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    return q, k, v
