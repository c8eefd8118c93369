"""R-Drop: two passes with different dropout should say the same."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.train.loss import smoothed_cross_entropy


def agreeing_cross_entropy(
    logits: Float[Tensor, "B2 T V"],
    say: Int[Tensor, "B2 T"],
    real: Bool[Tensor, "B2 T"],
    smoothing: float,
    weight: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Gives the mean of two passes' losses plus `weight / 2` times their divergence, and the mean of their −log p.

    The rows below are the rows above once more. The divergence of p and q is `(KL(p‖q) + KL(q‖p)) / 2`, which is
    `Σ_v (p_v − q_v)(log p_v − log q_v) / 2` (Wu et al. 2021, arXiv:2106.14448). Twice the work of one pass.
    """
    loss, plain = smoothed_cross_entropy(logits, say, real, smoothing)
    logs = torch.log_softmax(logits.float() if logits.dtype in {torch.bfloat16, torch.float16} else logits, dim=-1)
    p, q = logs.chunk(2)
    apart = ((p.exp() - q.exp()) * (p - q)).sum(dim=-1) / 2  # (B, T)
    return loss / 2 + weight / 2 * (apart * real[: len(apart)]).sum(), plain / 2
