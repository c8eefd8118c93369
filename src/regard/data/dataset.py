"""A prepared corpus as a folder."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from regard.config import TextSettings
from regard.data.cleaning import DataReport, EncodedPair, PairIndex, Status, read_report
from regard.data.formats import read_tsv
from regard.data.store import SIDES, IdStore, Windows, open_store, write_store
from regard.data.subword_sampling import Segmentations, SegmentationSampler, ranges
from regard.data.tokenizer import Tokenizer

BLOCK = 1024  # pairs; what is drawn depends on it


@dataclass(frozen=True)
class VariantSampler:
    """How pairs are cut again: a sampler for each side, how often, and the most pieces."""

    samplers: tuple[SegmentationSampler, SegmentationSampler]
    n_variants: int
    max_len: int
    seed: int

    def sample(self, number: int, block: Sequence[EncodedPair]) -> tuple[Segmentations, Segmentations]:
        """Cuts a block, the same for the same pairs, number and seed; too long a variant gives way to the plain cut."""
        texts = ([item.pair.src for item in block], [item.pair.tgt for item in block])
        plain = ([item.src for item in block], [item.tgt for item in block])
        src, tgt = (
            self._with_plain(plain[k], self.samplers[k].sample(texts[k], self.n_variants, self._generator(number, k)))
            for k in range(len(SIDES))
        )
        return src, tgt

    def _generator(self, number: int, side: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, number, side])

    def _with_plain(self, plain: Sequence[Sequence[int]], drawn: Segmentations) -> Segmentations:
        """Sets the plain segmentation of each sentence before its variants."""
        first = plain_segmentations(plain)
        ids = np.concatenate([first.ids, drawn.ids])
        lengths = np.concatenate([first.lengths, drawn.lengths], axis=1)
        starts = np.concatenate([_starts(first), _starts(drawn) + len(first.ids)], axis=1)
        long = lengths > self.max_len
        starts, lengths = np.where(long, starts[:, :1], starts), np.where(long, lengths[:, :1], lengths)
        return Segmentations(ids[ranges(starts.ravel(), lengths.ravel())], lengths)


def make_variant_sampler(tokenizer: Tokenizer, settings: TextSettings, seed: int) -> VariantSampler | None:
    """Gives what cuts pairs again, or nothing where the settings want no chance."""
    if settings.sampling == 0:
        return None
    models = (tokenizer.models[0], tokenizer.models[-1])
    src, tgt = (SegmentationSampler(model, settings.sampling) for model in models)
    return VariantSampler((src, tgt), settings.variants, settings.max_len, seed)


def plain_segmentations(sentences: Sequence[Sequence[int]]) -> Segmentations:
    """Lays sentences out that have one segmentation each."""
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    return Segmentations(np.fromiter(chain.from_iterable(sentences), np.int64, int(lengths.sum())), lengths[:, None])


def _starts(cuts: Segmentations) -> np.ndarray:
    return (np.cumsum(cuts.lengths) - cuts.lengths.ravel()).reshape(cuts.lengths.shape)


REPORT = "report.json"


@dataclass(frozen=True, eq=False)
class Dataset:
    """All that a trainer needs to know of a text.

    The stores are for the loss and leave out pairs that do not fit into a model; the lists of sentences are for
    scores, and hold given validation and test text in full. Without test text both are empty. Text without translations
    has no pairs, and a running text is stored in windows.
    """

    tokenizer: Tokenizer
    train: IdStore | Windows
    valid: IdStore | Windows
    test: IdStore | Windows
    valid_pairs: list[tuple[str, str]]
    test_pairs: list[tuple[str, str]]
    report: DataReport


@dataclass(frozen=True)
class StoreLayout:
    """How training pairs are stored: the larger vocabulary, the weights of their sources, how they are cut again."""

    vocab_size: int
    weights: tuple[float, ...]
    sampler: VariantSampler | None


def open_dataset(folder: Path) -> Dataset:
    """Opens what `prepare` made."""
    return Dataset(
        tokenizer=Tokenizer.load(folder),
        train=open_store(folder / "train"),
        valid=open_store(folder / "valid"),
        test=open_store(folder / "test"),
        valid_pairs=_read_sentence_pairs(folder / "valid.tsv"),
        test_pairs=_read_sentence_pairs(folder / "test.tsv"),
        report=read_report(folder / REPORT),
    )


def write_train(folder: Path, index: PairIndex, pairs: Iterable[EncodedPair], layout: StoreLayout) -> list[EncodedPair]:
    """Stores the pairs for training and gives back those for validation; the ledger learns which do not fit."""
    split: list[EncodedPair] = []
    n_variants = layout.sampler.n_variants if layout.sampler else 0
    with write_store(folder / "train", layout.vocab_size, n_variants, layout.weights) as store:
        kept = _training_pairs(index, pairs, split)
        number = 0
        while block := list(islice(kept, BLOCK)):
            sides = layout.sampler.sample(number, block) if layout.sampler else _plain_sides(block)
            store.extend(*sides, [item.pair.origin for item in block])
            number += 1
    return split


def _training_pairs(
    ledger: PairIndex, fitted: Iterable[EncodedPair], split: list[EncodedPair]
) -> Iterator[EncodedPair]:
    for place, item in zip(ledger.indices(Status.TRAIN, Status.VALID), fitted, strict=True):
        if item.status is not Status.TRAIN:
            ledger.statuses[place] = item.status
        elif ledger.statuses[place] == Status.VALID:
            split.append(item)
        else:
            yield item


def _plain_sides(block: Sequence[EncodedPair]) -> tuple[Segmentations, Segmentations]:
    return plain_segmentations([item.src for item in block]), plain_segmentations([item.tgt for item in block])


def write_held_out(folder: Path, pairs: Sequence[EncodedPair], vocab_size: int) -> None:
    """Stores the pairs that fit in `folder`, and the sentences of all in a file beside it."""
    with write_store(folder, vocab_size) as store:
        for item in pairs:
            if item.status is Status.TRAIN:
                store.add(item.src, item.tgt)
    lines = (f"{item.pair.src}\t{item.pair.tgt}\n" for item in pairs)
    with folder.with_suffix(".tsv").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


def _read_sentence_pairs(path: Path) -> list[tuple[str, str]]:
    return [(pair.src, pair.tgt) for pair in read_tsv(str(path))]
