"""The work that all systems get: sentences with the lengths of real ones, and how much arithmetic they take."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.config import ModelSettings, Settings, parse_settings, preset

# Pieces of a joint vocabulary of 8,000 for each word of Multi30k, English and German.
PIECES_PER_WORD = (1.19, 1.31)
# Lengths in such pieces of 160 pairs of Multi30k (English:German), drawn at random, where no corpus is given.
LENGTHS = """
8:6 7:6 7:6 7:7 7:7 9:7 7:7 9:7 9:8 7:8 8:8 9:8 8:8 8:8 9:8 11:8 7:8 8:8 10:9 9:9 9:9 10:9 8:9 14:9 16:9 10:9 11:9 12:9
9:9 10:9 11:10 10:10 12:10 10:10 9:10 10:10 10:10 11:10 9:10 11:10 10:10 10:10 13:11 12:11 11:11 11:11 11:11 15:11 11:11
11:11 11:11 12:11 13:12 13:12 11:12 13:12 10:12 8:12 15:12 13:12 11:12 11:12 13:12 11:12 14:12 12:12 13:12 17:12 14:12
14:12 13:12 14:13 15:13 13:13 15:13 14:13 9:13 14:13 10:13 14:13 13:13 16:13 14:14 16:14 16:14 16:14 11:14 14:14 15:14
13:14 17:14 10:14 14:14 17:14 10:14 19:15 10:15 17:15 13:15 16:15 17:15 12:15 12:15 13:15 11:15 24:16 16:16 16:16 17:16
19:16 16:16 13:16 15:16 12:16 19:16 16:16 16:16 17:17 18:17 18:17 17:17 15:17 17:17 20:17 18:17 12:17 10:17 18:18 13:18
12:18 17:18 12:18 20:18 22:18 18:18 17:18 21:18 11:18 20:19 21:19 20:20 16:21 23:21 21:22 23:22 20:22 16:23 24:23 16:23
16:24 17:24 19:25 17:25 19:25 16:27 17:30 18:32 20:32 30:33 21:34
"""
FIRST_PIECE = 4  # ids below are PAD, UNK, BOS and EOS


@dataclass(frozen=True)
class Task:
    """One batch to decode: source sentences, and the tokens that each of their targets must have."""

    sources: list[list[int]]
    n_tokens: int

    @property
    def total(self) -> int:
        """Counts the tokens to write."""
        return len(self.sources) * self.n_tokens


def shape(name: str, dropout: float) -> tuple[ModelSettings, int]:
    """Gives a preset's sizes, and its vocabulary's."""
    chosen = preset(name)
    chosen["model"] = {**chosen.get("model", {}), "dropout": dropout}
    made = parse_settings(Settings, chosen)
    return made.model, made.text.vocab_size


def read_lengths(corpus: Path | None) -> NDArray[np.int64]:
    """Gives the pieces of source and target of many pairs, (n, 2), without the end of the sentence."""
    if corpus is None:
        return np.array([[int(n) for n in pair.split(":")] for pair in LENGTHS.split()])
    sides = []
    for language, ratio in zip(("en", "de"), PIECES_PER_WORD, strict=True):
        with gzip.open(corpus / f"train.{language}.gz", "rt", encoding="utf-8") as lines:
            sides.append([max(1, round(len(line.split()) * ratio)) for line in lines])
    return np.array(sides).T


def make_tasks(lengths: NDArray[np.int64], batch: int, n_tasks: int, vocab_size: int) -> list[Task]:
    """Sorts sentences by length as a translator of files does, and takes every so many-th batch of them.

    All sentences of a batch get its mean target length, so that every system takes as many steps.
    """
    rng = np.random.default_rng(0)
    drawn = lengths[rng.integers(len(lengths), size=batch * max(2 * n_tasks, 16))]
    drawn = drawn[np.lexsort((drawn[:, 0], drawn[:, 1]))].reshape(-1, batch, 2)
    picked = drawn[np.linspace(0, len(drawn) - 1, 2 * n_tasks + 1).astype(int)[1::2]]
    return [
        Task([rng.integers(FIRST_PIECE, vocab_size, size=n).tolist() for n in some[:, 0]], round(some[:, 1].mean()) + 1)
        for some in picked
    ]


def encoder_weights(sizes: ModelSettings) -> int:
    """Counts the numbers in the encoder's matrices."""
    D, F = sizes.d_model, sizes.d_ff
    return sizes.n_encoder_layers * (4 * D * D + 2 * D * F)


def cross_weights(sizes: ModelSettings) -> int:
    """Counts the numbers in the matrices that project the source for the decoder."""
    return sizes.n_decoder_layers * 2 * sizes.d_model**2


def decoder_weights(sizes: ModelSettings, vocab_size: int) -> int:
    """Counts the numbers in the matrices that each target token meets, the vocabulary's among them."""
    D, F = sizes.d_model, sizes.d_ff
    return sizes.n_decoder_layers * (6 * D * D + 2 * D * F) + D * vocab_size


def reading_flops(sizes: ModelSettings, lengths: Sequence[int]) -> float:
    """Counts the operations that encode sources of these lengths and project them for the decoder, padding left out."""
    n, squares = sum(lengths), sum(length**2 for length in lengths)
    products = 4 * sizes.d_model * squares * sizes.n_encoder_layers
    return 2 * n * (encoder_weights(sizes) + cross_weights(sizes)) + products


def writing_flops(sizes: ModelSettings, vocab_size: int, lengths: Sequence[tuple[int, int]]) -> float:
    """Counts the operations that write targets for sources of these lengths, a token looking at those before it."""
    n = sum(tgt for _, tgt in lengths)
    seen = sum(tgt * src + tgt * (tgt + 1) / 2 for src, tgt in lengths)
    return 2 * n * decoder_weights(sizes, vocab_size) + 4 * sizes.d_model * seen * sizes.n_decoder_layers
