"""The loss: cross-entropy with smoothed labels."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def smoothed_cross_entropy(
    logits: Float[Tensor, "B T V"], say: Int[Tensor, "B T"], real: Bool[Tensor, "B T"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Gives the sum over real tokens of `(1 − ε)(−log p_say) + ε mean_v(−log p_v)`, and the sum of −log p_say alone.

    Szegedy et al. 2016, arXiv:1512.00567. Written with one log-sum-exp instead of a table of log-probabilities.
    """
    logits = logits.float() if logits.dtype in {torch.bfloat16, torch.float16} else logits
    log_sum = torch.logsumexp(logits, dim=-1)  # (B, T)
    chosen = logits.gather(-1, say[..., None])[..., 0]
    plain = log_sum - chosen
    loss = plain if smoothing == 0.0 else (1 - smoothing) * plain + smoothing * (log_sum - logits.mean(dim=-1))
    return (loss * real).sum(), (plain.detach() * real).sum()
