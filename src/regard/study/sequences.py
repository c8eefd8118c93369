"""Sequences of any length: short ones to learn from, long ones to be judged on."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from regard.batch import Batch, make_batch
from regard.padding import EOS

FIRST_SYMBOL = 4  # ids below are PAD, UNK, BOS and EOS


class Sequences(ABC):
    """A task whose difficulty does not depend on length: what is lost on longer texts is the model's own fault."""

    n_symbols: int

    @abstractmethod
    def draw(self, chance: np.random.Generator, rows: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draws sources and targets of one length, symbols counted from 0."""

    @abstractmethod
    def least_loss(self, tgt: NDArray[np.int64]) -> float:
        """Gives the mean −log p of a token under the best there can be: who knows the rule."""

    @property
    def vocab_size(self) -> int:
        """Counts the ids."""
        return FIRST_SYMBOL + self.n_symbols


@dataclass(frozen=True)
class Chain(Sequences):
    """Each symbol depends on the two before it, by a table drawn from the seed; the source says nothing.

    The order of the two matters, so that a model must know who stands where, and nothing farther back does.
    """

    n_symbols: int = 5
    sharpness: float = 0.15  # of the Dirichlet distribution that rows are drawn from: less is nearer to certain
    seed: int = 0

    @cached_property
    def table(self) -> NDArray[np.float64]:
        """Gives the chances of the next symbol, after each two."""
        chance = np.random.default_rng(self.seed)
        return chance.dirichlet([self.sharpness] * self.n_symbols, size=(self.n_symbols, self.n_symbols))

    def draw(self, chance: np.random.Generator, rows: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        tgt = np.zeros((rows, length), dtype=np.int64)
        tgt[:, :2] = chance.integers(self.n_symbols, size=(rows, 2))
        ends, dice = self.table.cumsum(axis=-1), chance.random((rows, length))
        for t in range(2, length):
            after = ends[tgt[:, t - 2], tgt[:, t - 1]]
            tgt[:, t] = np.minimum((dice[:, t, None] > after).sum(axis=1), self.n_symbols - 1)
        return np.zeros((rows, 1), dtype=np.int64), tgt

    def least_loss(self, tgt: NDArray[np.int64]) -> float:
        chances = self.table[tgt[:, :-2], tgt[:, 1:-1], tgt[:, 2:]]
        known = -np.log(np.maximum(chances, 1e-300)).sum()
        return float((known + 2 * len(tgt) * np.log(self.n_symbols)) / tgt.size)


@dataclass(frozen=True)
class Copy(Sequences):
    """The target is the source, of which no symbol comes twice: what comes next is beside what was just said."""

    n_symbols: int = 80

    def draw(self, chance: np.random.Generator, rows: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if length > self.n_symbols:
            raise ValueError(f"a text without repeats must have at most {self.n_symbols} symbols, got {length}")
        drawn = chance.permuted(np.tile(np.arange(self.n_symbols), (rows, 1)), axis=1)[:, :length]
        return drawn, drawn

    def least_loss(self, tgt: NDArray[np.int64]) -> float:
        return 0.0


def learning_batch(task: Sequences, chance: np.random.Generator, rows: int, longest: int) -> Batch:
    """Makes a batch of texts of half the longest length to all of it."""
    src, tgt = task.draw(chance, rows, longest)
    lengths = chance.integers(longest // 2, longest + 1, size=rows)
    sources, targets = ([_ids(row[:n]) for row, n in zip(side, lengths, strict=True)] for side in (src, tgt))
    return _without_ends(make_batch(sources, targets))


def judging_batch(src: NDArray[np.int64], tgt: NDArray[np.int64]) -> Batch:
    """Makes a batch of texts of one length."""
    return _without_ends(make_batch([_ids(row) for row in src], [_ids(row) for row in tgt]))


def token_losses(logits: Float[Tensor, "B T V"], batch: Batch) -> tuple[Float[Tensor, " P"], Float[Tensor, " P"]]:
    """Gives the mean −log p at each place, and the share of texts whose likeliest symbol is right there."""
    logits, say, real = logits.float(), batch.tgt.labels, batch.tgt.token_mask
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), say, reduction="none")
    right, n = (logits.argmax(dim=-1) == say) & real, real.sum(dim=0)
    seen = n > 0
    return (losses * real).sum(dim=0)[seen] / n[seen], right.sum(dim=0)[seen] / n[seen]


def _ids(symbols: NDArray[np.int64]) -> list[int]:
    return (symbols + FIRST_SYMBOL).tolist()


def _without_ends(batch: Batch) -> Batch:
    """Neither learns nor judges when to stop: that a text ends at n is true of all that a model has seen."""
    tgt = batch.tgt
    real = tgt.token_mask & (tgt.labels != EOS)
    return replace(batch, tgt=replace(tgt, token_mask=real, n_tokens=int(real.sum())))
