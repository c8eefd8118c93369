"""A prepared corpus as a folder."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from regard.atomic import CHECKSUMS, verify_checksums
from regard.config import TextSettings
from regard.data.cleaning import DataReport, EncodedPair, PairIndex, Status, read_report
from regard.data.formats import read_tsv
from regard.data.store import SIDES, IdStore, Windows, open_store, write_store
from regard.data.subword_sampling import Segmentations, SegmentationSampler, ranges
from regard.data.tokenizer import TOKENIZER_FILES, Tokenizer

BLOCK = 1024  # pairs; the segmentations that are drawn depend on it


@dataclass(frozen=True)
class VariantSampler:
    """Draws further segmentations of training pairs: a sampler for each side, how many, and the most tokens."""

    samplers: tuple[SegmentationSampler, SegmentationSampler]
    n_variants: int
    max_len: int
    seed: int

    def sample(self, number: int, block: Sequence[EncodedPair]) -> tuple[Segmentations, Segmentations]:
        """Segment a block, the same for the same pairs, number and seed; the plain one replaces too long a variant."""
        texts = ([item.pair.src for item in block], [item.pair.tgt for item in block])
        plain = ([item.src for item in block], [item.tgt for item in block])
        src, tgt = (
            self._with_plain(plain[k], self.samplers[k].sample(texts[k], self.n_variants, self._generator(number, k)))
            for k in range(len(SIDES))
        )
        return src, tgt

    def _generator(self, number: int, side: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, number, side])

    def _with_plain(self, plain: Sequence[Sequence[int]], variants: Segmentations) -> Segmentations:
        """Put the plain segmentation of each sentence before its variants."""
        first = plain_segmentations(plain)
        ids = np.concatenate([first.ids, variants.ids])
        lengths = np.concatenate([first.lengths, variants.lengths], axis=1)
        starts = np.concatenate([_starts(first), _starts(variants) + len(first.ids)], axis=1)
        long = lengths > self.max_len
        starts, lengths = np.where(long, starts[:, :1], starts), np.where(long, lengths[:, :1], lengths)
        return Segmentations(ids[ranges(starts.ravel(), lengths.ravel())], lengths)


def make_variant_sampler(tokenizer: Tokenizer, settings: TextSettings, seed: int) -> VariantSampler | None:
    """Return a sampler, or None if the settings ask for none."""
    if settings.sampling == 0:
        return None
    models = (tokenizer.models[0], tokenizer.models[-1])
    src, tgt = (SegmentationSampler(model, settings.sampling) for model in models)
    return VariantSampler((src, tgt), settings.variants, settings.max_len, seed)


def plain_segmentations(sentences: Sequence[Sequence[int]]) -> Segmentations:
    """Lay out sentences that have one segmentation each."""
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    return Segmentations(np.fromiter(chain.from_iterable(sentences), np.int64, int(lengths.sum())), lengths[:, None])


def _starts(segmentations: Segmentations) -> np.ndarray:
    lengths = segmentations.lengths
    return (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)


REPORT, FINGERPRINT = "report.json", "fingerprint.json"
SPLITS = ("train", "valid", "test")


def is_data_file(name: str) -> bool:
    """Tell whether a name is that of a file or a folder of a dataset."""
    return name in {REPORT, FINGERPRINT, CHECKSUMS, *SPLITS, "valid.tsv", "test.tsv", *TOKENIZER_FILES}


@dataclass(frozen=True, eq=False)
class Dataset:
    """All that a trainer needs of a corpus.

    The stores are for the loss and leave out pairs that are too long; the lists of pairs are for scores, and hold the
    validation and test text in full. Without test text both are empty. Text without translations has no pairs, and
    running text is stored in windows.
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
    """How training pairs are stored: the larger vocabulary, the weights of their sources, the sampler of variants."""

    vocab_size: int
    weights: tuple[float, ...]
    sampler: VariantSampler | None


def open_dataset(folder: Path) -> Dataset:
    """Open a folder written by `prepare`; raise ValueError naming what is damaged."""
    verify_checksums(folder)
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
    """Store the training pairs and return those split off for validation; the index is marked with those too long."""
    split: list[EncodedPair] = []
    n_variants = layout.sampler.n_variants if layout.sampler else 0
    with write_store(folder / "train", layout.vocab_size, n_variants, layout.weights) as store:
        training = _training_pairs(index, pairs, split)
        number = 0
        while block := list(islice(training, BLOCK)):
            sides = layout.sampler.sample(number, block) if layout.sampler else _plain_sides(block)
            store.extend(*sides, [item.pair.origin for item in block])
            number += 1
    return split


def _training_pairs(index: PairIndex, pairs: Iterable[EncodedPair], split: list[EncodedPair]) -> Iterator[EncodedPair]:
    for i, item in zip(index.indices(Status.TRAIN, Status.VALID), pairs, strict=True):
        if item.status is not Status.TRAIN:
            index.statuses[i] = item.status
        elif index.statuses[i] == Status.VALID:
            split.append(item)
        else:
            yield item


def _plain_sides(block: Sequence[EncodedPair]) -> tuple[Segmentations, Segmentations]:
    return plain_segmentations([item.src for item in block]), plain_segmentations([item.tgt for item in block])


def write_held_out(folder: Path, pairs: Sequence[EncodedPair], vocab_size: int) -> None:
    """Store the pairs that fit in `folder`, and all pairs as text in a TSV file next to it."""
    with write_store(folder, vocab_size) as store:
        for item in pairs:
            if item.status is Status.TRAIN:
                store.add(item.src, item.tgt)
    lines = (f"{item.pair.src}\t{item.pair.tgt}\n" for item in pairs)
    with folder.with_suffix(".tsv").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


def _read_sentence_pairs(path: Path) -> list[tuple[str, str]]:
    return [(pair.src, pair.tgt) for pair in read_tsv(str(path))]
