"""What studies read and learn: synthetic sequences of any length, and sentence pairs as a model reads them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.batch import Batch, make_batch
from regard.config import TrainSettings
from regard.model import Seq2Seq
from regard.padding import EOS, Ids
from regard.pipeline.translator import Translator
from regard.shapes import Float
from regard.train.loss import LossModule
from regard.train.step import learning_rate, make_optimiser, run_step, set_rate

FIRST_SYMBOL = 4  # ids below are PAD, UNK, BOS and EOS


class Sequences(ABC):
    """A task whose difficulty does not depend on length: what is lost on longer texts is lost by the model."""

    n_symbols: int

    @abstractmethod
    def draw(
        self, generator: np.random.Generator, rows: int, length: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw sources and targets of one length, symbols counted from 0."""

    @abstractmethod
    def least_loss(self, tgt: NDArray[np.int64]) -> float:
        """Return the mean −log p of a token under the best possible model, which knows the rule."""

    @property
    def vocab_size(self) -> int:
        return FIRST_SYMBOL + self.n_symbols


@dataclass(frozen=True)
class Chain(Sequences):
    """Each symbol depends on the two before it, by a table drawn from the seed; the source is empty of information.

    The order of the two matters, so a model must know their positions; nothing farther back matters.
    """

    n_symbols: int = 5
    sharpness: float = 0.15  # of the Dirichlet distribution of the rows: less is closer to deterministic
    seed: int = 0

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """Return the probabilities of the next symbol after every two."""
        generator = np.random.default_rng(self.seed)
        return generator.dirichlet([self.sharpness] * self.n_symbols, size=(self.n_symbols, self.n_symbols))

    def draw(
        self, generator: np.random.Generator, rows: int, length: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        tgt = np.zeros((rows, length), dtype=np.int64)
        tgt[:, :2] = generator.integers(self.n_symbols, size=(rows, 2))
        ends, dice = self.table.cumsum(axis=-1), generator.random((rows, length))
        for t in range(2, length):
            after = ends[tgt[:, t - 2], tgt[:, t - 1]]
            tgt[:, t] = np.minimum((dice[:, t, None] > after).sum(axis=1), self.n_symbols - 1)
        return np.zeros((rows, 1), dtype=np.int64), tgt

    def least_loss(self, tgt: NDArray[np.int64]) -> float:
        probabilities = self.table[tgt[:, :-2], tgt[:, 1:-1], tgt[:, 2:]]
        known = -np.log(np.maximum(probabilities, 1e-300)).sum()
        return float((known + 2 * len(tgt) * np.log(self.n_symbols)) / tgt.size)


@dataclass(frozen=True)
class Copy(Sequences):
    """The target is the source, in which no symbol repeats: the next symbol follows the last one in the source."""

    n_symbols: int = 80

    def draw(
        self, generator: np.random.Generator, rows: int, length: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if length > self.n_symbols:
            raise ValueError(f"a text without repeats must have at most {self.n_symbols} symbols, got {length}")
        drawn = generator.permuted(np.tile(np.arange(self.n_symbols), (rows, 1)), axis=1)[:, :length]
        return drawn, drawn

    def least_loss(self, tgt: NDArray[np.int64]) -> float:
        return 0.0

    def blind_loss(self, length: int) -> float:
        """Return the least loss of a model that does not know the source: each symbol not yet written is as likely."""
        return float(np.log(self.n_symbols - np.arange(length)).mean())


def training_batch(
    task: Sequences, generator: np.random.Generator, rows: int, longest: int, shortest: int | None = None
) -> Batch:
    """Make a batch of texts of the shortest length, by default half the longest, to the longest."""
    src, tgt = task.draw(generator, rows, longest)
    lengths = generator.integers(longest // 2 if shortest is None else shortest, longest + 1, size=rows)
    sources, targets = ([_ids(row[:n]) for row, n in zip(side, lengths, strict=True)] for side in (src, tgt))
    return _without_ends(make_batch(sources, targets))


def eval_batch(src: NDArray[np.int64], tgt: NDArray[np.int64]) -> Batch:
    """Make a batch of texts of one length."""
    return _without_ends(make_batch([_ids(row) for row in src], [_ids(row) for row in tgt]))


def token_losses(logits: Float[Tensor, "B T V"], batch: Batch) -> tuple[Float[Tensor, " P"], Float[Tensor, " P"]]:
    """Return the mean −log p at each position, and the accuracy of the most likely symbol there."""
    logits, say, real = logits.float(), batch.tgt.labels, batch.tgt.token_mask
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), say, reduction="none")
    right, n = (logits.argmax(dim=-1) == say) & real, real.sum(dim=0)
    counted = n > 0
    return (losses * real).sum(dim=0)[counted] / n[counted], right.sum(dim=0)[counted] / n[counted]


@torch.no_grad()
def judge_tokens(model: Seq2Seq, batches: Sequence[Batch]) -> tuple[float, float]:
    """Return the mean −log p of a token under teacher forcing, and how often the most likely one is right."""
    device = next(model.parameters()).device
    total = right = n = 0.0
    for batch in (batch.to(device) for batch in batches):
        logits, say, real = model(batch).float(), batch.tgt.labels, batch.tgt.token_mask
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), say, reduction="none")
        total += float((losses * real).sum())
        right += int(((logits.argmax(dim=-1) == say) & real).sum())
        n += int(real.sum())
    return total / n, right / n


def _ids(symbols: NDArray[np.int64]) -> list[int]:
    return (symbols + FIRST_SYMBOL).tolist()


def _without_ends(batch: Batch) -> Batch:
    """Mask EOS in training and evaluation: that texts end by n holds for all training texts and would be learned."""
    tgt = batch.tgt
    real = tgt.token_mask & (tgt.labels != EOS)
    return replace(batch, tgt=replace(tgt, token_mask=real, n_tokens=int(real.sum())))


TEXT = Path(__file__).with_name("sentences.tsv")
LANGUAGES = ("zh", "en")


def bundled_pairs(src_lang: str, tgt_lang: str) -> list[tuple[str, str]]:
    """Return everyday sentences in Chinese and English, written for this purpose, source first."""
    lines = [line.split("\t") for line in TEXT.read_text(encoding="utf-8").splitlines()]
    if (src_lang, tgt_lang) == LANGUAGES:
        return [(chinese, english) for chinese, english in lines]
    if (tgt_lang, src_lang) == LANGUAGES:
        return [(english, chinese) for chinese, english in lines]
    raise ValueError(
        f"the bundled sentences are Chinese and English, and the model translates {src_lang} to {tgt_lang}: "
        "give a text with --data"
    )


@dataclass(frozen=True)
class EncodedPairs:
    """The pairs that a model can read, as texts and as ids; `n_unread` others were empty or too long."""

    pairs: list[tuple[str, str]]
    src: list[Ids]
    tgt: list[Ids]
    n_unread: int


def encode_pairs(translator: Translator, pairs: Sequence[tuple[str, str]], least: int) -> EncodedPairs:
    """Tokenize the pairs that the model can read; raise ValueError where they are fewer than a study needs."""
    src = translator.tokenizer.encode_batch([one for one, _ in pairs], "src")
    tgt = translator.tokenizer.encode_batch([other for _, other in pairs], "tgt")
    lengths = [(len(one), len(other)) for one, other in zip(src, tgt, strict=True)]
    fit = [n for n, both in enumerate(lengths) if min(both) > 0 and max(both) <= translator.max_len]
    if len(fit) < least:
        raise ValueError(f"this study needs {least} pairs or more that the model can read, got {len(fit)}")
    return EncodedPairs([pairs[n] for n in fit], [src[n] for n in fit], [tgt[n] for n in fit], len(pairs) - len(fit))


def fit(model: Seq2Seq, draw: Callable[[np.random.Generator], Batch], seed: int, steps: int, lr: float) -> None:
    """Take all steps, with a cosine schedule to 0; the batches depend on the seed alone."""
    train = TrainSettings(
        lr=lr, schedule="cosine", warmup=steps // 10, max_steps=steps, precision="float32", label_smoothing=0.0
    )
    learner, optimiser, generator = (
        LossModule(model, 0.0),
        make_optimiser(model, train),
        np.random.default_rng([seed, 1]),
    )
    device = next(model.parameters()).device
    for step in range(1, steps + 1):
        batch = draw(generator).to(device)
        set_rate(optimiser, learning_rate(step, train))
        run_step(learner, optimiser, [batch], 1 / batch.tgt.n_tokens, train)
