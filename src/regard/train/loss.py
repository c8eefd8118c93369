"""Losses: label smoothing, R-Drop, fused linear cross-entropy."""

from typing import Any

import torch
from torch import Tensor, nn

from regard.autograd import once_differentiable
from regard.batch import Batch, duplicate_rows
from regard.model import Seq2Seq
from regard.ops import triton_kernels, usable
from regard.shapes import Bool, Float, Int


def smoothed_cross_entropy(
    logits: Float[Tensor, "B T V"], labels: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"], label_smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the sum over tokens of `(1 − ε)(−log p_label) + ε mean_v(−log p_v)`, and the sum of −log p_label alone.

    Szegedy et al. 2016, arXiv:1512.00567. Computed from one log-sum-exp, without a table of log-probabilities.
    """
    logits = logits.float() if logits.dtype in {torch.bfloat16, torch.float16} else logits
    log_sum = torch.logsumexp(logits, dim=-1)  # (B, T)
    nll = log_sum - logits.gather(-1, labels[..., None])[..., 0]
    loss = nll
    if label_smoothing != 0.0:
        loss = (1 - label_smoothing) * nll + label_smoothing * (log_sum - logits.mean(dim=-1))
    return (loss * mask).sum(), (nll.detach() * mask).sum()


def r_drop_cross_entropy(
    logits: Float[Tensor, "B2 T V"],
    labels: Int[Tensor, "B2 T"],
    mask: Bool[Tensor, "B2 T"],
    label_smoothing: float,
    weight: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the mean of two passes' losses plus `weight / 2` times their divergence, and the mean of their −log p.

    The second half of the rows repeats the first. The divergence of p and q is `(KL(p‖q) + KL(q‖p)) / 2`, which is
    `Σ_v (p_v − q_v)(log p_v − log q_v) / 2` (Wu et al. 2021, arXiv:2106.14448). Twice the work of one pass.
    """
    loss, nll = smoothed_cross_entropy(logits, labels, mask, label_smoothing)
    logs = torch.log_softmax(logits.float() if logits.dtype in {torch.bfloat16, torch.float16} else logits, dim=-1)
    p, q = logs.chunk(2)
    divergence = ((p.exp() - q.exp()) * (p - q)).sum(dim=-1) / 2  # (B, T)
    return loss / 2 + weight / 2 * (divergence * mask[: len(divergence)]).sum(), nll / 2


# Logits in one block: small enough for a CPU's cache, large enough for a fast matrix product.
BLOCK = {"cpu": 2**21, "cuda": 2**27}


def linear_cross_entropy(
    x: Float[Tensor, "B T D"],
    table: Float[Tensor, "V D"],
    labels: Int[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    label_smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return `smoothed_cross_entropy(x @ tableᵀ, …)`, with memory for one block of logits.

    The gradient of the logits, `softmax − target`, is known as soon as they are, so each block is multiplied while it
    is in the cache; the backward pass only scales (as in arXiv:2410.10989).
    """
    x, labels, mask = x.flatten(0, 1), labels.flatten(), mask.flatten()
    if not x.is_cuda and 0 < (n_tokens := int(mask.sum())) < len(x):  # on a GPU this would synchronise
        rows = mask.nonzero(as_tuple=True)[0]
        x, labels, mask = x[rows], labels[rows], mask.new_ones(n_tokens)
    return LinearCrossEntropy.apply(x, table, labels, mask, label_smoothing)


class LinearCrossEntropy(torch.autograd.Function):
    """Sums of the smoothed and of the plain loss over tokens."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, table: Tensor, labels: Tensor, mask: Tensor, label_smoothing: float
    ) -> tuple[Tensor, Tensor]:
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
            x, weights = x.to(dtype), table.to(dtype)
        else:
            weights = table
        d_x, d_table = torch.empty_like(x), torch.zeros_like(table)
        rows = max(1, BLOCK["cuda" if x.is_cuda else "cpu"] // len(table))
        sums = []
        for start in range(0, len(x), rows):
            at = slice(start, start + rows)
            loss, nll, d_logits = _block(x[at] @ weights.T, labels[at], mask[at], label_smoothing)
            sums.append(torch.stack([loss, nll]))
            d_x[at] = d_logits @ weights
            d_table.addmm_(d_logits.T, x[at]) if d_table.dtype == x.dtype else d_table.add_(d_logits.T @ x[at])
        ctx.save_for_backward(d_x, d_table)
        loss, nll = torch.stack(sums).sum(dim=0)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        d_x, d_table = ctx.saved_tensors
        return d_x * d_loss.to(d_x.dtype), d_table * d_loss, *[None] * (len(ctx.needs_input_grad) - 2)


class LinearRDrop(torch.autograd.Function):
    """Sums of the R-Drop loss and of the plain loss on a GPU, all logits in one block."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, table: Tensor, labels: Tensor, mask: Tensor, label_smoothing: float, weight: float
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
        x, weights = x.to(dtype), table.to(dtype)
        logits = x @ weights.T
        loss, nll = triton_kernels().losses.rdrop_loss(logits, labels, mask, label_smoothing, weight)
        ctx.save_for_backward(logits @ weights, (logits.T @ x).to(table.dtype))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    backward = LinearCrossEntropy.backward  # pyright: ignore[reportAssignmentType]


def _block(logits: Tensor, labels: Tensor, mask: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return both sums over one block, and the gradient of the first for its logits."""
    if usable(logits):
        return *triton_kernels().losses.smoothed_loss(logits, labels, mask, label_smoothing), logits
    dtype, V = logits.dtype, logits.shape[-1]
    logits = logits.float() if dtype in {torch.bfloat16, torch.float16} else logits
    gold = logits.gather(1, labels[:, None])
    mean = logits.mean(dim=-1, keepdim=True)
    max_logit = logits.amax(dim=-1, keepdim=True)
    p = logits.sub_(max_logit).exp_()
    total = p.sum(dim=-1, keepdim=True)
    log_sum = max_logit + total.log()
    nll = log_sum - gold
    loss = nll if label_smoothing == 0.0 else (1 - label_smoothing) * nll + label_smoothing * (log_sum - mean)
    share = mask[:, None].to(p.dtype)
    p.mul_(share / total).sub_(share * (label_smoothing / V))
    p.scatter_add_(1, labels[:, None], share * (label_smoothing - 1.0))
    return (loss * share).sum(), (nll * share).sum(), p.to(dtype)


class LossModule(nn.Module):
    """A model with its loss: from a batch to the sum of the smoothed loss, and of −log p alone."""

    def __init__(self, model: Seq2Seq, label_smoothing: float, r_drop: float = 0.0):
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.r_drop = r_drop

    def forward(self, batch: Batch) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        if self.r_drop > 0.0:
            return self._twice(duplicate_rows(batch))
        x, tgt = self.model.features(batch), batch.tgt
        if self.model.output.bias is not None:  # which the fused loss does not have
            return smoothed_cross_entropy(self.model.output(x), tgt.labels, tgt.token_mask, self.label_smoothing)
        return linear_cross_entropy(x, self.model.output.table.weight, tgt.labels, tgt.token_mask, self.label_smoothing)

    def _twice(self, batch: Batch) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        x, tgt = self.model.features(batch), batch.tgt
        if not x.is_cuda or self.model.output.bias is not None:
            logits = self.model.output(x)
            return r_drop_cross_entropy(logits, tgt.labels, tgt.token_mask, self.label_smoothing, self.r_drop)
        labels, mask = (half.chunk(2)[0].flatten() for half in (tgt.labels, tgt.token_mask))
        table = self.model.output.table.weight
        return LinearRDrop.apply(x.flatten(0, 1), table, labels, mask, self.label_smoothing, self.r_drop)  # pyright: ignore
