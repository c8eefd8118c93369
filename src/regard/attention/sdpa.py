"""Dot-product attention on fused kernels, PyTorch's or ours: masks in the form that keeps the kernels fused."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend

from regard import ops
from regard.mask import Mask
from regard.position.contract import OffsetBias, dense
from regard.shapes import Bool, Float


@dataclass(frozen=True, eq=False)
class KernelCall:
    """The arguments of one call of PyTorch's kernel, and which rows of its output are to be zeros."""

    q: Float[Tensor, "B H Q W"]
    k: Float[Tensor, "B H K W"]
    v: Float[Tensor, "B H K W"]
    attn_mask: Tensor | None
    is_causal: bool
    empty: Bool[Tensor, "#B #H #Q 1"] | None

    def kernel(self, dropout: float, scale: float) -> str:
        """Return the name of the kernel that PyTorch picks for this call."""
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
    """Return `softmax(scale · q kᵀ + bias) v` without building the weights where a fused kernel exists.

    Flash attention (Dao et al. 2022, arXiv:2205.14135): Θ(QKE) time, Θ(Q + K) extra memory. A bias that needs a
    gradient itself, and dropout on the CPU, have no fused kernel in PyTorch and take its materialised one; a bias by
    offset has one of ours on a GPU.
    """
    if isinstance(bias, OffsetBias) and ops.relative_attention_fits(q, k, v):
        return ops.relative_attention(q, k, v, mask, bias, scale, dropout)
    if k.shape[2] == 0:
        return (q @ k.transpose(-1, -2)) @ v  # zeros, for which no kernel need be asked
    if ops.short_attention_fits(q, k, v, mask, bias, dropout):
        return ops.short_attention(q, k, v, mask, scale)
    call = prepare(q, k, v, mask, dense(bias, q.dtype))
    out = F.scaled_dot_product_attention(call.q, call.k, call.v, call.attn_mask, dropout, call.is_causal, scale=scale)[
        ..., : v.shape[3]
    ]
    return out if call.empty is None else out.masked_fill(call.empty, 0.0)


def kernel_name(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | OffsetBias | None, scale: float, dropout: float
) -> str:
    """Return the name of the kernel that `fused_attention` runs."""
    if isinstance(bias, OffsetBias) and ops.relative_attention_fits(q, k, v):
        return "relative"
    if ops.short_attention_fits(q, k, v, mask, bias, dropout):
        return "short"
    return prepare(q, k, v, mask, dense(bias, q.dtype)).kernel(dropout, scale)


def prepare(q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None) -> KernelCall:
    """Bring mask, bias and widths into the form that PyTorch's kernels take."""
    Q, K = q.shape[2], k.shape[2]
    q, k, v = _pad_to_one_width(q, k, v)
    if bias is None and _is_causal_alone(mask):
        empty = None if mask.query_lengths is None else _padded_rows(mask.query_lengths, Q)
        return KernelCall(q, k, v, None, mask.bounds_future(K - 1), empty)
    allowed = mask.tile(range(Q), range(K), q.device)
    if allowed is None:
        return KernelCall(q, k, v, None if bias is None else bias.to(q.dtype), False, None)
    # Kernels differ in what they return for a row without keys (zeros, NaN, a mean), so they never get one.
    empty = None if mask.no_empty_rows else ~allowed.any(dim=-1, keepdim=True)
    allowed = allowed if empty is None else allowed | empty
    if bias is not None:
        allowed = bias.to(q.dtype).masked_fill(~allowed, float("-inf"))
    return KernelCall(q, k, v, allowed, False, empty)


def _is_causal_alone(mask: Mask) -> bool:
    """Return whether `is_causal` is the whole mask: padded keys then follow from padded queries, or there are none."""
    same_padding = mask.key_lengths is mask.query_lengths
    return mask.causal and mask.offset == 0 and same_padding and mask.window is None and mask.allowed is None


def _padded_rows(lengths: Tensor, Q: int) -> Tensor:
    return (torch.arange(Q, device=lengths.device) >= lengths[:, None])[:, None, :, None]  # (B, 1, Q, 1)


def _pad_to_one_width(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Widen with zeros to one common width, which the flash kernels need; zeros change no product."""
    width = max(q.shape[-1], v.shape[-1])
    q, k, v = (x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    return q, k, v
