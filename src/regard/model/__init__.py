"""Parameters, heads and the residual stream."""

from regard.model.multihead import MultiHeadAttention

__all__ = ["MultiHeadAttention"]
