"""Each operation of a layer once: our Triton kernel where it is usable, else PyTorch."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.mask import Mask
from regard.position.contract import OffsetBias
from regard.shapes import Float, Int

LEVELS = 2**16  # of the random numbers that decide what a CPU drops
# Limits of the kernels for dot products: queries or keys and features that fit into the registers of one program,
# fewer in float32, where wider heads take minutes to compile; and tokens from which on a bias is worth a kernel.
SHORT, WIDEST, WIDEST_FLOAT32, LONG = 64, 128, 64, 64
# Limits of the kernels for additive attention: queries that share the keys, each with its own program; keys whose
# weights one program holds; features of a value that fit into registers.
FEW, KEYS_AT_ONCE, WIDEST_VALUE = 16, 512, 256


def triton_kernels():
    """Return the package of our kernels; nothing else imports it."""
    from regard import kernels  # Triton is installed only where there is a GPU, and takes a second to import

    return kernels


def usable(x: Float[Tensor, "*shape"]) -> bool:
    """Return whether our kernels take this tensor: on a GPU, not empty, in float32 or less."""
    return x.is_cuda and x.dtype.itemsize <= 4 and x.numel() > 0


def usable_in_training(x: Float[Tensor, "*shape"]) -> bool:
    """Return whether the kernels with a faster backward pass take this tensor; without one, PyTorch is as fast."""
    return usable(x) and torch.is_grad_enabled()


def is_sharded(tensor: Tensor) -> bool:
    """Return whether a tensor is a DTensor; loading that module takes half a second, and without it none is."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def linear(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, "D2 D"], bias: Float[Tensor, " D2"] | None
) -> Float[Tensor, "*B D2"]:
    """Return `x Wᵀ + b`."""
    if bias is None or not usable_in_training(x) or is_sharded(weight):
        return F.linear(x, weight, bias)
    return triton_kernels().linear.linear(x, weight, bias)


def joint_linear(x: Float[Tensor, "*B D"], maps: Sequence[Any]) -> tuple[Tensor, ...]:
    """Apply several linear layers to one input; on a GPU, where every call costs, as one whose output is split."""
    biases = [each.bias for each in maps if each.bias is not None]
    if not x.is_cuda or is_sharded(maps[0].weight) or len(biases) not in {0, len(maps)}:
        return tuple(each(x) for each in maps)
    weight, sizes = torch.cat([each.weight for each in maps]), [each.out_features for each in maps]
    if not (biases and usable_in_training(x)):
        return F.linear(x, weight, torch.cat(biases) if biases else None).split(sizes, dim=-1)
    return triton_kernels().linear.joint_linear(x, weight, torch.cat(biases), sizes)


def feed_forward(
    x: Float[Tensor, "*B D"], inner: Any, outer: Any, activation: Callable[[Tensor], Tensor], rate: float
) -> Float[Tensor, "*B D"]:
    """Return `outer(dropout(activation(inner(x))))` for two linear layers."""
    if activation is F.relu and usable_in_training(x) and not is_sharded(inner.weight):
        return triton_kernels().linear.feed_forward(x, inner.weight, inner.bias, outer.weight, outer.bias, rate)
    return outer(dropout(activation(inner(x)), rate))


def dropout(x: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Zero a share `rate` of the features and scale the others up.

    PyTorch draws one random number for each feature; on a CPU, which draws them one after another, that costs as much
    as a small matrix product. Here 16 random bits decide, a quarter of a drawn number, so that the share is exact to
    1 in 65536. On other devices PyTorch's own is used.
    """
    if rate == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, rate)
    n = x.numel()
    words = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[:n].view(x.shape)
    below = round(rate * LEVELS)
    return x * ((bits >= below - LEVELS // 2) * torch.tensor(LEVELS / (LEVELS - below), dtype=x.dtype))


def add_dropout(x: Float[Tensor, "*B D"], update: Float[Tensor, "*B D"], rate: float) -> Float[Tensor, "*B D"]:
    """Return `x + dropout(update)`."""
    return (
        triton_kernels().norm.add_dropout(x, update, rate)
        if rate > 0.0 and usable(update)
        else x + dropout(update, rate)
    )


def layer_norm(
    x: Float[Tensor, "*B D"], weight: Float[Tensor, " D"], bias: Float[Tensor, " D"] | None, eps: float
) -> Float[Tensor, "*B D"]:
    """Normalise each vector over its features."""
    if usable(x) and bias is not None:
        return triton_kernels().norm.add_norm(x, None, weight, bias, eps, 0.0)
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def add_layer_norm(
    x: Float[Tensor, "*B D"],
    update: Float[Tensor, "*B D"],
    weight: Float[Tensor, " D"],
    bias: Float[Tensor, " D"] | None,
    eps: float,
    rate: float,
) -> Float[Tensor, "*B D"]:
    """Return `layer_norm(x + dropout(update))`."""
    if usable(x) and bias is not None:
        return triton_kernels().norm.add_norm(x, update, weight, bias, eps, rate)
    return F.layer_norm(x + dropout(update, rate), weight.shape, weight, bias, eps)


def gru_gates(
    of_input: Float[Tensor, "R D3"], of_state: Float[Tensor, "R D3"], state: Float[Tensor, "R D"]
) -> Float[Tensor, "R D"]:
    """Return `z h + (1 − z) n` with `r = σ(i_r + s_r)`, `z = σ(i_z + s_z)` and `n = tanh(i_n + r s_n)`.

    i is the input's part of the gates, s that of the state h, each in the order r, z, n, as in PyTorch and cuDNN.
    """
    if usable(of_input):
        return triton_kernels().gru.gru_gates(of_input, of_state, state)
    D = state.shape[-1]
    r, z = torch.sigmoid(of_input[:, : 2 * D] + of_state[:, : 2 * D]).chunk(2, dim=-1)
    new = torch.tanh(torch.addcmul(of_input[:, 2 * D :], r, of_state[:, 2 * D :]))
    return torch.lerp(new, state.to(new.dtype), z)


def attention_gru(
    words: Float[Tensor, "T B D3"],
    state: Float[Tensor, "B D"],
    f_k: Float[Tensor, "B S F"],
    values: Float[Tensor, "B S E"],
    lengths: Int[Tensor, " B"] | None,
    weights: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
) -> tuple[Float[Tensor, "T B D"], Float[Tensor, "T B E"]]:
    """Return all states and contexts of a GRU with additive attention; only where `additive_few_fits`."""
    return triton_kernels().gru.attention_gru(words, state, f_k, values, lengths, weights)


def short_attention_fits(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | OffsetBias | None, rate: float
) -> bool:
    """Return whether the kernel for short sequences takes this call."""
    if not usable(q) or bias is not None or rate > 0.0:
        return False
    lengths, widest = mask.key_lengths, WIDEST if _compute_dtype(q).itemsize < 4 else WIDEST_FLOAT32
    plain = mask.query_lengths is None and mask.window is None and mask.allowed is None and mask.offset == 0
    return (
        plain
        and (lengths is None or lengths.dim() == 1)
        and max(q.shape[2], k.shape[2]) <= SHORT
        and max(q.shape[3], v.shape[3]) <= widest
    )


def short_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float) -> Tensor:
    """Return `softmax(scale · q kᵀ) v`; only where `short_attention_fits`."""
    q, k, v = (x.to(_compute_dtype(q)) for x in (q, k, v))
    return triton_kernels().attention_short.short_attention(q, k, v, mask.key_lengths, mask.causal, scale)


def relative_attention_fits(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether the kernel for a bias by offset takes this call: long inputs in half precision.

    It adds up gradients in any order, so it is not used where deterministic algorithms are asked for.
    """
    if not usable(q) or _compute_dtype(q).itemsize != 2 or torch.are_deterministic_algorithms_enabled():
        return False
    return min(q.shape[2], k.shape[2]) >= LONG and max(q.shape[3], v.shape[3]) <= WIDEST


def relative_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: OffsetBias, scale: float, rate: float
) -> Tensor:
    """Return `softmax(scale · q kᵀ + bias) v`; only where `relative_attention_fits`."""
    q, k, v = (x.to(_compute_dtype(q)) for x in (q, k, v))
    return triton_kernels().relative_forward.relative_attention(q, k, v, mask, bias, scale, rate)


def additive_few_fits(q: Tensor, k: Tensor, mask: Mask, bias: Tensor | None, rate: float) -> bool:
    """Return whether additive attention's kernel for few queries takes this call."""
    if not usable(q) or bias is not None or rate > 0.0:
        return False
    if mask.query_lengths is not None or mask.causal or mask.window is not None or mask.allowed is not None:
        return False
    padded = mask.key_lengths is None or mask.key_lengths.dim() == 1
    return padded and q.shape[2] <= FEW and 0 < k.shape[2] <= KEYS_AT_ONCE


def additive_few(f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Return `softmax(w · tanh(f_q + f_k)) v`; only where `additive_few_fits`."""
    return triton_kernels().additive_short.additive_attention_short(f_q, f_k, w, v, mask.key_lengths)


def additive_many_fits(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> bool:
    """Return whether additive attention's kernel for many queries takes this call.

    It adds up gradients in any order, so it is not used where deterministic algorithms are asked for.
    """
    if not usable(q) or bias is not None or torch.are_deterministic_algorithms_enabled():
        return False
    return min(q.shape[2], k.shape[2]) >= FEW and v.shape[3] <= WIDEST_VALUE


def additive_many(f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, mask: Mask, rate: float, exact: bool) -> Tensor:
    """Return `softmax(w · tanh(f_q + f_k)) v`; only where `additive_many_fits`.

    Half precision takes the GPU's approximate tanh, unless the exact one is asked for.
    """
    approximate = f_q.dtype.itemsize == 2 and not exact
    return triton_kernels().additive.additive_attention(f_q, f_k, w, v, mask, rate, approximate)


def _compute_dtype(x: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
