"""The masked softmax: scores over keys become weights."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_softmax(
    scores: Float[Tensor, "B H Q K"], allowed: Bool[Tensor, "#B #H #Q #K"] | None
) -> Float[Tensor, "B H Q K"]:
    """Normalises each row over its allowed keys: `exp(s_i) / Σ_j exp(s_j)`, and exactly 0 elsewhere.

    A row with no allowed key is all zeros. It passes the softmax as if all were allowed, so that no NaN ever exists for
    the backward pass to find.
    """
    if allowed is None:
        return torch.softmax(scores, dim=-1)
    nobody = ~allowed.any(dim=-1, keepdim=True)  # (#B, #H, #Q, 1)
    scores = scores.masked_fill(~(allowed | nobody), float("-inf"))
    return torch.softmax(scores, dim=-1).masked_fill(~allowed, 0.0)
