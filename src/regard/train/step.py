"""One step: forward, backward, clipping, optimiser."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.batch import Batch
from regard.config import TrainSettings
from regard.train.distributed import Team


def make_optimiser(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """Makes AdamW (arXiv:1711.05101); vectors, such as norms and biases, and tables of words are not decayed."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    parameters = [p for p in model.parameters() if p.requires_grad]
    plain = [p for p in parameters if p.dim() < 2 or id(p) in tables]
    decayed = [p for p in parameters if not (p.dim() < 2 or id(p) in tables)]
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas, eps=1e-9, fused=True)


def run_step(
    learner: nn.Module,
    optimiser: torch.optim.Optimizer,
    batches: Sequence[Batch],
    n_tokens: int,
    settings: TrainSettings,
    team: Team,
    lr: float,
) -> Tensor:
    """Learns from some batches at once, and gives this process's sum of −log p over its real tokens.

    The loss is the mean over the real tokens of all processes and batches, so that the sum of their gradients does not
    depend on how the tokens are shared out; DDP takes the mean over processes, hence the factor.
    """
    for group in optimiser.param_groups:
        group["lr"] = lr
    optimiser.zero_grad(set_to_none=True)
    told = []
    device = next(learner.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
        for batch in batches:
            loss, plain = learner(batch)
            (loss * (team.world / n_tokens)).backward()
            told.append(plain)
    if settings.clip is not None:
        nn.utils.clip_grad_norm_(learner.parameters(), settings.clip)
    optimiser.step()
    return torch.stack(told).sum()
