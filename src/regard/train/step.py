"""One step: forward, backward, clipping, optimiser."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.batch import Batch
from regard.config import TrainSettings


def make_optimiser(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """Makes AdamW (arXiv:1711.05101); vectors, such as norms and biases, and tables of words are not decayed.

    On a GPU the learning rate is a tensor there, so that a captured step reads it anew each time.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    parameters = [p for p in model.parameters() if p.requires_grad]
    plain = [p for p in parameters if p.dim() < 2 or id(p) in tables]
    decayed = [p for p in parameters if not (p.dim() < 2 or id(p) in tables)]
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    device = parameters[0].device
    on_gpu = device.type == "cuda"
    lr = torch.tensor(settings.lr, device=device) if on_gpu else settings.lr
    return torch.optim.AdamW(groups, lr=lr, betas=settings.betas, eps=1e-9, fused=True, capturable=on_gpu)


def set_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate, in place where it is a tensor."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def run_step(
    learner: nn.Module,
    optimiser: torch.optim.Optimizer,
    batches: Sequence[Batch],
    scale: float | Float[Tensor, ""],
    settings: TrainSettings,
) -> Float[Tensor, ""]:
    """Learns from some batches at once, and gives this process's sum of −log p over its real tokens.

    `scale` makes the sum of losses a mean over the real tokens of all processes and batches, so that the gradients do
    not depend on how the tokens are shared out.
    """
    optimiser.zero_grad(set_to_none=True)
    told = []
    device = next(learner.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
        for batch in batches:
            loss, plain = learner(batch)
            (loss * scale).backward()
            told.append(plain)
    if settings.clip is not None:
        nn.utils.clip_grad_norm_(learner.parameters(), settings.clip)
    optimiser.step()
    return torch.stack(told).sum()
