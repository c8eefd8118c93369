"""Triton kernels for NVIDIA GPUs: what PyTorch does in several passes over memory, in one; imported only there."""

from regard.kernels import additive, additive_short, attention_short, gru, linear, norm, relative_forward

__all__ = ["additive", "additive_short", "attention_short", "gru", "linear", "norm", "relative_forward"]
