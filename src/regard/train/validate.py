"""Validation loss and BLEU."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

import torch
from torch import nn

from regard.batch import make_batch
from regard.checkpoint.folder import Checkpoint
from regard.config import DecodeSettings
from regard.data.store import IdStore, Windows
from regard.engine import select_engine
from regard.engine.plain import PlainEngine
from regard.pipeline.generator import Generator
from regard.pipeline.translator import Translator
from regard.score import score
from regard.search.scoring import document_likelihood, text_likelihood
from regard.train.batching import make_batches
from regard.train.loss import smoothed_cross_entropy

GIVEN, WRITTEN = 24, 120  # pieces of the sample that are given, and that are written after them, at most


def text_loss(checkpoint: Checkpoint, store: IdStore | Windows) -> float:
    """Gives the mean −log p of the pieces of a store: of one text that runs on, or of documents with their ends."""
    model, budget = checkpoint.model, checkpoint.settings.train.batch_tokens
    if isinstance(store, Windows):
        return text_likelihood(model, store.ids, store.width, budget).loss
    return document_likelihood(model, [store.tgt(i) for i in range(len(store))], budget).loss


def text_sample(checkpoint: Checkpoint, store: IdStore | Windows) -> tuple[str, str, str]:
    """Gives the beginning of a store, how the model goes on with it, and how the text does."""
    writer = Generator.from_checkpoint(checkpoint, PlainEngine(checkpoint.model))
    text = [int(i) for i in store.tgt(0)]
    given = text[: min(GIVEN, len(text) // 2)]
    decode = checkpoint.settings.decode
    settings = replace(decode, method="sample", n_best=1, max_extra=min(WRITTEN, decode.max_extra))
    written = [token for token, _ in writer.tokens(given, settings)]
    rest = text[len(given) : len(given) + WRITTEN]
    return _decode_line(checkpoint, given), _decode_line(checkpoint, written), _decode_line(checkpoint, rest)


def _decode_line(checkpoint: Checkpoint, ids: list[int]) -> str:
    return checkpoint.tokenizer.decode(ids).replace("\n", "⏎")


@dataclass(frozen=True)
class Validation:
    """Mean −log p of a target token, BLEU and chrF of greedy translations, and the first few of them.

    Of a model that translates nothing there are no such scores, and the sample is a text that it went on with.
    """

    loss: float
    bleu: float | None
    chrf: float | None
    samples: list[tuple[str, str, str]]  # source, translation, reference

    @property
    def scores(self) -> dict[str, float]:
        """Gives the numbers that there are, by name."""
        named = {"loss": self.loss, "bleu": self.bleu, "chrf": self.chrf}
        return {name: value for name, value in named.items() if value is not None}

    def value(self, stop_on: str) -> float:
        """Gives the number by which models compare, larger being better."""
        return -self.loss if stop_on == "loss" else self.scores[stop_on]

    def __str__(self) -> str:
        words = {"bleu": "BLEU", "chrf": "chrF"}
        rest = [f", {words[name]} {value:.2f}" for name, value in self.scores.items() if name in words]
        return f"validation loss {self.loss:.3f}, perplexity {exp(min(self.loss, 50.0)):.2f}" + "".join(rest)


def validate(
    checkpoint: Checkpoint, store: IdStore | Windows, pairs: Sequence[tuple[str, str]], n_samples: int = 3
) -> Validation:
    """Judges a model without changing it."""
    was_training = checkpoint.model.training
    checkpoint.model.eval()
    try:
        if checkpoint.settings.data.form != "pairs":
            return Validation(text_loss(checkpoint, store), None, None, [text_sample(checkpoint, store)])
        assert isinstance(store, IdStore), "only running text is cut into windows"
        loss = mean_loss(checkpoint.model, store, checkpoint.settings.train.batch_tokens)
        # On a GPU as it writes fastest, since training waits.
        on_gpu = next(checkpoint.model.parameters()).is_cuda
        engine = select_engine(checkpoint.model) if on_gpu else PlainEngine(checkpoint.model)
        translator = Translator.from_checkpoint(checkpoint, engine)
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
    plan = make_batches(lengths, max(budget, int(lengths.max()) + 1), seed=0, epoch=0)
    total = 0.0
    for indices in (batch.tolist() for batch in plan.batches):
        batch = make_batch([store.src(i) for i in indices], [store.tgt(i) for i in indices]).to(device)
        _, plain = smoothed_cross_entropy(model(batch), batch.tgt.labels, batch.tgt.token_mask, 0.0)
        total += float(plain)
    return total / sum(plan.n_tokens)
