"""Training steps: ours as the training loop takes it, and the usual one around the models of others."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Batch
from regard.build import build_model
from regard.config import ModelSettings, TrainSettings
from regard.padding import PAD
from regard.train.batching import StepBatches
from regard.train.distributed import World
from regard.train.loss import LossModule
from regard.train.step import make_optimiser, make_step

from .pytorch import TorchTransformer

LR = 1e-4
IGNORED = -100  # the label that counts as nothing for PyTorch and Hugging Face

Take = Callable[[int], Tensor]  # takes a step on the batch of a number, and gives its mean loss
Peer = tuple[nn.Module, Callable[[Batch], Tensor]]  # a model, and its mean loss over real tokens


class TorchLoss(nn.Module):
    """The mean loss over real tokens of PyTorch's model."""

    def __init__(self, sizes: ModelSettings, vocab_size: int):
        super().__init__()
        self.model = TorchTransformer(sizes, vocab_size)

    def forward(self, src: Tensor, read: Tensor, say: Tensor, real: Tensor) -> Tensor:
        labels = say.masked_fill(~real, IGNORED)
        return F.cross_entropy(self.model(src, read).flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED)


class MarianLoss(nn.Module):
    """Hugging Face's own loss, the same mean.

    In training its encoder and decoder ask at each layer whether to leave it out, which breaks a compiled model into
    pieces. One that is to be compiled `whole` does not ask; it drops nothing from its embeddings either.
    """

    def __init__(self, sizes: ModelSettings, vocab_size: int, whole: bool):
        from .marian import make_marian

        super().__init__()
        self.model = make_marian(sizes, vocab_size)
        self.whole = whole

    def train(self, mode: bool = True) -> "MarianLoss":
        super().train(mode)
        if self.whole:
            inner: Any = self.model.model
            inner.encoder.training = inner.decoder.training = False  # of these two alone, not of their layers
        return self

    def forward(self, src: Tensor, read: Tensor, say: Tensor, real: Tensor) -> Tensor:
        labels, mask = say.masked_fill(~real, IGNORED), (src != PAD).long()
        return self.model(input_ids=src, attention_mask=mask, decoder_input_ids=read, labels=labels).loss


def torch_peer(sizes: ModelSettings, vocab_size: int, compiled: bool) -> Peer:
    """Makes PyTorch's model."""
    return _of_tensors(TorchLoss(sizes, vocab_size), compiled)


def marian_peer(sizes: ModelSettings, vocab_size: int, compiled: bool) -> Peer:
    """Makes Hugging Face's model, or raises an ImportError."""
    return _of_tensors(MarianLoss(sizes, vocab_size, whole=compiled), compiled)


def joey_peer(sizes: ModelSettings, vocab_size: int, compiled: bool) -> Peer:
    """Makes Joey NMT's model, or raises an ImportError; it is not compiled."""
    from .joey import joey_loss, make_joey

    assert not compiled, "Joey's model has not been tried compiled"
    model = make_joey(sizes, vocab_size)
    return model, partial(joey_loss, model)


PEERS = {"nn.Transformer": torch_peer, "Marian": marian_peer, "Joey NMT": joey_peer}


def regard_step(
    sizes: ModelSettings, vocab_size: int, groups: list[StepBatches], settings: TrainSettings, device: torch.device
) -> Take:
    """Makes our own step, as the training loop takes it: captured on a GPU."""
    model = build_model(sizes, (vocab_size, vocab_size)).to(device)
    learner = LossModule(model, settings.label_smoothing, settings.r_drop).train()
    step = make_step(learner, make_optimiser(model, settings), settings, World(), device, _refuse)

    def take(i: int) -> Tensor:
        torch.manual_seed(i)
        return step(groups[i], LR) / groups[i].n_tokens

    return take


def usual_step(make: Callable[[], Peer], batches: list[Batch], settings: TrainSettings, device: torch.device) -> Take:
    """Makes the step that everybody writes, around a model of another's; its batches lie on the device already."""
    model, loss = make()
    model.to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=LR, betas=settings.betas, fused=True)

    def take(i: int) -> Tensor:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
            value = loss(batches[i])
        value.backward()
        if settings.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimiser.step()
        return value.detach()

    return take


def _of_tensors(module: nn.Module, compiled: bool) -> Peer:
    """Hands tensors alone to a module, since each new number would be compiled anew."""
    call: Callable[..., Any] = torch.compile(module, dynamic=False) if compiled else module

    def loss(batch: Batch) -> Tensor:
        return call(batch.src.ids, batch.tgt.inputs, batch.tgt.labels, batch.tgt.token_mask)

    return module, loss


def _refuse(message: str) -> None:
    raise RuntimeError(message)  # a step that was not captured is not what is measured
