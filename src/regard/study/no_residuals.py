"""Small models with and without residual connections, trained on the same text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.batch import Batch, make_batch
from regard.build import build_model
from regard.config import ModelSettings
from regard.model import Seq2Seq
from regard.model.norm import Residual
from regard.padding import BOS, EOS, PAD, Ids
from regard.search.scoring import token_costs
from regard.shapes import Bool, Float, Int
from regard.train.examples import ExampleSettings, train_on_examples
from regard.train.loss import smoothed_cross_entropy

M = TypeVar("M", bound=nn.Module)


class NoResidual(nn.Module):
    """A residual without its sum: `norm(dropout(f(x)))`, or, the norm before the sub-layer, `dropout(f(norm(x)))`."""

    def __init__(self, residual: Residual):
        super().__init__()
        self.norm = residual.norm
        self.norm_first = residual.norm_first
        self.dropout = residual.dropout

    def before(self, x: Float[Tensor, "B T D"], token_mask: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B T D"]:
        """Return the input of the sub-layer."""
        return self.norm(x, token_mask) if self.norm_first else x

    def forward(
        self, x: Float[Tensor, "B T D"], update: Float[Tensor, "B T D"], token_mask: Bool[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T D"]:
        update = self.dropout(update)
        return update if self.norm_first else self.norm(update, token_mask)


def without_residuals(model: M) -> M:
    """Remove the residual connections of a model or a stack, in place; its parameters stay."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is Residual:
                setattr(module, name, NoResidual(child))
    return model


HELD_OUT = 5  # every fifth pair is held out …
MAX_HELD_OUT = 500  # … and this many of these measure the loss
N_SPECIAL = max(PAD, BOS, EOS) + 1


@dataclass(frozen=True)
class SmallSettings:
    """The size of the small models, and their training."""

    n_encoder_layers: int = 4
    n_decoder_layers: int = 2
    d_model: int = 64
    n_heads: int = 4
    d_ff: int = 128
    norm_place: str = "before"
    dropout: float = 0.1
    batch: int = 16  # sentences per step
    steps: int = 1000
    lr: float = 2e-3


@dataclass(frozen=True, eq=False)
class SmallModel:
    """One of the small models, with the loss of a held-out token."""

    residual: bool
    trained: bool
    seed: int
    loss: float
    model: Seq2Seq


def renumber_tokens(src: Sequence[Ids], tgt: Sequence[Ids]) -> tuple[list[Ids], list[Ids], int]:
    """Renumber the tokens that occur from 0 on, special ones first; return both sides and the vocabulary's size."""
    tokens = sorted({int(token) for ids in [*src, *tgt] for token in ids if token >= N_SPECIAL})
    numbers = {token: N_SPECIAL + n for n, token in enumerate(tokens)} | {n: n for n in range(N_SPECIAL)}

    def renumber(side: Sequence[Ids]) -> list[Ids]:
        return [[numbers[int(token)] for token in ids] for ids in side]

    return renumber(src), renumber(tgt), N_SPECIAL + len(tokens)


def small_models(
    src: Sequence[Ids], tgt: Sequence[Ids], vocab_size: int, settings: SmallSettings, seeds: Sequence[int], device: str
) -> Iterator[SmallModel]:
    """Build and train the models one after another; yield each before its first step and after its last."""
    held = list(range(0, len(src), HELD_OUT))[:MAX_HELD_OUT]
    trained = [n for n in range(len(src)) if n % HELD_OUT]
    if not held or not trained:
        raise ValueError(f"small models need {HELD_OUT} pairs or more to learn from, got {len(src)}")
    unseen = _batch(src, tgt, held)
    for seed in seeds:
        for residual in (True, False):
            torch.manual_seed(seed)
            model = build_model(_model_settings(settings), (vocab_size, vocab_size)).to(device)
            model = (model if residual else without_residuals(model)).eval()
            yield SmallModel(residual, False, seed, _loss(model, unseen), model)
            _train(model, (src, tgt), trained, unseen, settings, seed)
            yield SmallModel(residual, True, seed, _loss(model, unseen), model.eval())


def n_small_models(seeds: Sequence[int]) -> int:
    """Return how many models `small_models` yields, for a progress bar."""
    return 4 * len(seeds)


def _model_settings(settings: SmallSettings) -> ModelSettings:
    names = ("n_encoder_layers", "n_decoder_layers", "d_model", "n_heads", "d_ff", "norm_place", "dropout")
    return ModelSettings(**{name: getattr(settings, name) for name in names})


def _train(
    model: Seq2Seq,
    pairs: tuple[Sequence[Ids], Sequence[Ids]],
    trained: list[int],
    unseen: Batch,
    settings: SmallSettings,
    seed: int,
) -> None:
    """Train for a number of steps, and keep the epoch with the best held-out loss."""
    device = next(model.parameters()).device

    def loss(numbers: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        batch = _batch(*pairs, [trained[n] for n in numbers.tolist()]).to(device)
        total, _ = smoothed_cross_entropy(model(batch), batch.tgt.labels, batch.tgt.token_mask, 0.1)
        return total / batch.tgt.n_tokens

    epochs = ceil(settings.steps / ceil(len(trained) / settings.batch))
    learning = ExampleSettings(epochs, settings.batch, settings.lr, seed=seed)
    for _ in train_on_examples(model, len(trained), loss, lambda: -_loss(model, unseen), learning):
        pass


def _batch(src: Sequence[Ids], tgt: Sequence[Ids], numbers: list[int]) -> Batch:
    return make_batch([src[n] for n in numbers], [tgt[n] for n in numbers])


def _loss(model: Seq2Seq, batch: Batch) -> float:
    return float(token_costs(model, batch).double().sum()) / batch.tgt.n_tokens
