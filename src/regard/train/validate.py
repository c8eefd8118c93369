"""How good is the model now: loss and BLEU on text it does not learn from."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from regard.batch import make_batch
from regard.checkpoint import Checkpoint
from regard.config import DecodeSettings
from regard.decode.translator import Translator
from regard.score.bleu import score
from regard.text.store import IdStore
from regard.train.loss import smoothed_cross_entropy
from regard.train.plan import plan_epoch


@dataclass(frozen=True)
class Validation:
    """Mean −log p of a target token, BLEU and chrF of greedy translations, and the first few of them."""

    loss: float
    bleu: float
    chrf: float
    samples: list[tuple[str, str, str]]  # source, translation, reference


def validate(
    checkpoint: Checkpoint, store: IdStore, pairs: Sequence[tuple[str, str]], n_samples: int = 3
) -> Validation:
    """Judges a model without changing it."""
    was_training = checkpoint.model.training
    checkpoint.model.eval()
    try:
        loss = mean_loss(checkpoint.model, store, checkpoint.settings.train.batch_tokens)
        translator = Translator.of(checkpoint)
        outputs = [
            found.text for found in translator.translate([src for src, _ in pairs], DecodeSettings(method="greedy"))
        ]
    finally:
        checkpoint.model.train(was_training)
    references = [tgt for _, tgt in pairs]
    found = score(outputs, references, checkpoint.settings.data.tgt_lang)
    samples = [(src, out, tgt) for (src, tgt), out in zip(pairs[:n_samples], outputs, strict=False)]
    return Validation(loss, found.bleu, found.chrf, samples)


@torch.no_grad()
def mean_loss(model: nn.Module, store: IdStore, budget: int) -> float:
    """Gives the mean −log p over all target tokens of a store."""
    device = next(model.parameters()).device
    lengths = store.lengths()
    plan = plan_epoch(lengths, max(budget, int(lengths.max()) + 1), seed=0, epoch=0)
    total = 0.0
    for indices in (batch.tolist() for batch in plan.batches):
        batch = make_batch([store.src(i) for i in indices], [store.tgt(i) for i in indices]).to(device)
        _, plain = smoothed_cross_entropy(model(batch), batch.tgt.say, batch.tgt.real, 0.0)
        total += float(plain)
    return total / sum(plan.n_tokens)
