"""Blocks of training pairs in their plain and their chance-based segmentations, ready for a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from regard.config import TextSettings
from regard.text.fitting import Fitted
from regard.text.ranges import ranges
from regard.text.store import SIDES
from regard.text.tokenizer import Tokenizer
from regard.text.variants import Cuts, Sampler

BLOCK = 1024  # pairs; what is drawn depends on it


@dataclass(frozen=True)
class Cutting:
    """How pairs are cut again: a sampler for each side, how often, and the most pieces."""

    samplers: tuple[Sampler, Sampler]
    n_variants: int
    max_len: int
    seed: int

    def cut(self, number: int, block: Sequence[Fitted]) -> tuple[Cuts, Cuts]:
        """Cuts a block, the same for the same pairs, number and seed; too long a variant gives way to the plain cut."""
        texts = ([item.pair.src for item in block], [item.pair.tgt for item in block])
        plain = ([item.src for item in block], [item.tgt for item in block])
        src, tgt = (
            self._joined(plain[k], self.samplers[k].draw(texts[k], self.n_variants, self._chance(number, k)))
            for k in range(len(SIDES))
        )
        return src, tgt

    def _chance(self, number: int, side: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, number, side])

    def _joined(self, plain: Sequence[Sequence[int]], drawn: Cuts) -> Cuts:
        """Sets the plain segmentation of each sentence before its variants."""
        first = plain_cuts(plain)
        ids = np.concatenate([first.ids, drawn.ids])
        lengths = np.concatenate([first.lengths, drawn.lengths], axis=1)
        starts = np.concatenate([_starts(first), _starts(drawn) + len(first.ids)], axis=1)
        long = lengths > self.max_len
        starts, lengths = np.where(long, starts[:, :1], starts), np.where(long, lengths[:, :1], lengths)
        return Cuts(ids[ranges(starts.ravel(), lengths.ravel())], lengths)


def make_cutting(tokenizer: Tokenizer, settings: TextSettings, seed: int) -> Cutting | None:
    """Gives what cuts pairs again, or nothing where the settings want no chance."""
    if settings.sampling == 0:
        return None
    models = (tokenizer.models[0], tokenizer.models[-1])
    src, tgt = (Sampler(model, settings.sampling) for model in models)
    return Cutting((src, tgt), settings.variants, settings.max_len, seed)


def plain_cuts(sentences: Sequence[Sequence[int]]) -> Cuts:
    """Lays sentences out that have one segmentation each."""
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    return Cuts(np.fromiter(chain.from_iterable(sentences), np.int64, int(lengths.sum())), lengths[:, None])


def _starts(cuts: Cuts) -> np.ndarray:
    return (np.cumsum(cuts.lengths) - cuts.lengths.ravel()).reshape(cuts.lengths.shape)
