"""Validation loss and BLEU."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

import torch
from torch import nn

from regard.batch import make_batch
from regard.checkpoint.weights import Checkpoint
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

PROMPT, CONTINUATION = 24, 120  # tokens of a sample at most


def text_loss(checkpoint: Checkpoint, store: IdStore | Windows) -> float:
    """Return the mean −log p of the tokens of a store: of running text, or of documents with their EOS."""
    model, budget = checkpoint.model, checkpoint.settings.train.batch_tokens
    if isinstance(store, Windows):
        return text_likelihood(model, store.ids, store.width, budget).loss
    return document_likelihood(model, [store.tgt(i) for i in range(len(store))], budget).loss


def text_sample(checkpoint: Checkpoint, store: IdStore | Windows) -> tuple[str, str, str]:
    """Return the beginning of a store, the model's continuation, and that of the text."""
    generator = Generator.from_checkpoint(checkpoint, PlainEngine(checkpoint.model))
    text = [int(i) for i in store.tgt(0)]
    prompt = text[: min(PROMPT, len(text) // 2)]
    decode = checkpoint.settings.decode
    settings = replace(decode, method="sample", n_best=1, max_extra=min(CONTINUATION, decode.max_extra))
    continuation = [token for token, _ in generator.tokens(prompt, settings)]
    rest = text[len(prompt) : len(prompt) + CONTINUATION]
    return _decode_line(checkpoint, prompt), _decode_line(checkpoint, continuation), _decode_line(checkpoint, rest)


def _decode_line(checkpoint: Checkpoint, ids: list[int]) -> str:
    return checkpoint.tokenizer.decode(ids).replace("\n", "⏎")


@dataclass(frozen=True)
class Validation:
    """Mean −log p of a target token, BLEU and chrF of greedy translations, and the first few of them.

    A decoder has no such scores; its sample is a prompt, its continuation, and that of the text.
    """

    loss: float
    bleu: float | None
    chrf: float | None
    samples: list[tuple[str, str, str]]  # source, translation, reference

    @property
    def scores(self) -> dict[str, float]:
        """The scores by name, without those that the model does not have."""
        scores = {"loss": self.loss, "bleu": self.bleu, "chrf": self.chrf}
        return {name: value for name, value in scores.items() if value is not None}

    def value(self, stop_on: str) -> float:
        """Return the number to maximise."""
        return -self.loss if stop_on == "loss" else self.scores[stop_on]

    def __str__(self) -> str:
        words = {"bleu": "BLEU", "chrf": "chrF"}
        rest = [f", {words[name]} {value:.2f}" for name, value in self.scores.items() if name in words]
        return f"validation loss {self.loss:.3f}, perplexity {exp(min(self.loss, 50.0)):.2f}" + "".join(rest)


def validate(
    checkpoint: Checkpoint, store: IdStore | Windows, pairs: Sequence[tuple[str, str]], n_samples: int = 3
) -> Validation:
    """Compute the validation loss and scores; the model's mode is restored."""
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
        translations = translator.translate([src for src, _ in pairs], DecodeSettings(method="greedy"))
    finally:
        checkpoint.model.train(was_training)
    outputs, references = [translation.text for translation in translations], [tgt for _, tgt in pairs]
    scores = score(outputs, references, checkpoint.settings.data.tgt_lang)
    samples = [(src, out, tgt) for (src, tgt), out in zip(pairs[:n_samples], outputs, strict=False)]
    return Validation(loss, scores.bleu, scores.chrf, samples)


@torch.no_grad()
def mean_loss(model: nn.Module, store: IdStore, budget: int) -> float:
    """Return the mean −log p over all target tokens of a store."""
    device = next(model.parameters()).device
    lengths = store.lengths()
    plan = make_batches(lengths, max(budget, int(lengths.max()) + 1), seed=0, epoch=0)
    total = 0.0
    for indices in (batch.tolist() for batch in plan.batches):
        batch = make_batch([store.src(i) for i in indices], [store.tgt(i) for i in indices]).to(device)
        _, plain = smoothed_cross_entropy(model(batch), batch.tgt.labels, batch.tgt.token_mask, 0.0)
        total += float(plain)
    return total / sum(plan.n_tokens)
