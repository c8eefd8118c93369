"""Triton kernels for NVIDIA GPUs: what PyTorch does in several passes over memory, in one; imported only there."""
