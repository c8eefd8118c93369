"""Triton kernels for NVIDIA GPUs: what PyTorch does in several passes over memory, in one; imported only there.

`ops.triton_kernels` imports them, for `regard.ops` itself, for `regard.engine` and for `regard.train`: norm's add_norm,
add_dropout and add_norm_decode; linear's linear, joint_linear, feed_forward and skinny_gemm; gru's gru_gates and
attention_gru; attention_short's short_attention; additive_short's additive_attention_short; additive's
additive_attention; relative_forward's relative_attention; losses' smoothed_loss and rdrop_loss; decode's
self_attention_decode, cross_attention_decode and topk; beam's advance and traceback. All else serves these.
"""

from regard.kernels import (
    additive,
    additive_short,
    attention_short,
    beam,
    decode,
    gru,
    linear,
    losses,
    norm,
    relative_forward,
)

__all__ = [
    "additive",
    "additive_short",
    "attention_short",
    "beam",
    "decode",
    "gru",
    "linear",
    "losses",
    "norm",
    "relative_forward",
]
