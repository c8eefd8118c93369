"""A prepared corpus as a folder."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from regard.config import TextSettings
from regard.data.cleaning import DataReport, Fitted, Ledger, Verdict, read_report
from regard.data.formats import read_tsv
from regard.data.store import SIDES, IdStore, Windows, open_store, write_store
from regard.data.subword_sampling import Cuts, Sampler, ranges
from regard.data.tokenizer import Tokenizer

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


REPORT = "report.json"


@dataclass(frozen=True, eq=False)
class Prepared:
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
class Layout:
    """How training pairs are stored: the larger vocabulary, the weights of their sources, how they are cut again."""

    vocab_size: int
    weights: tuple[float, ...]
    cutting: Cutting | None


def open_prepared(folder: Path) -> Prepared:
    """Opens what `prepare` made."""
    return Prepared(
        tokenizer=Tokenizer.load(folder),
        train=open_store(folder / "train"),
        valid=open_store(folder / "valid"),
        test=open_store(folder / "test"),
        valid_pairs=_read_sentences(folder / "valid.tsv"),
        test_pairs=_read_sentences(folder / "test.tsv"),
        report=read_report(folder / REPORT),
    )


def write_train(folder: Path, ledger: Ledger, fitted: Iterable[Fitted], how: Layout) -> list[Fitted]:
    """Stores the pairs for training and gives back those for validation; the ledger learns which do not fit."""
    split: list[Fitted] = []
    n_variants = how.cutting.n_variants if how.cutting else 0
    with write_store(folder / "train", how.vocab_size, n_variants, how.weights) as store:
        kept = _kept(ledger, fitted, split)
        number = 0
        while block := list(islice(kept, BLOCK)):
            sides = how.cutting.cut(number, block) if how.cutting else _plain(block)
            store.extend(*sides, [item.pair.origin for item in block])
            number += 1
    return split


def _kept(ledger: Ledger, fitted: Iterable[Fitted], split: list[Fitted]) -> Iterator[Fitted]:
    for place, item in zip(ledger.places(Verdict.TRAIN, Verdict.VALID), fitted, strict=True):
        if item.verdict is not Verdict.TRAIN:
            ledger.verdicts[place] = item.verdict
        elif ledger.verdicts[place] == Verdict.VALID:
            split.append(item)
        else:
            yield item


def _plain(block: Sequence[Fitted]) -> tuple[Cuts, Cuts]:
    return plain_cuts([item.src for item in block]), plain_cuts([item.tgt for item in block])


def write_held(folder: Path, fitted: Sequence[Fitted], vocab_size: int) -> None:
    """Stores the pairs that fit in `folder`, and the sentences of all in a file beside it."""
    with write_store(folder, vocab_size) as store:
        for item in fitted:
            if item.verdict is Verdict.TRAIN:
                store.add(item.src, item.tgt)
    lines = (f"{item.pair.src}\t{item.pair.tgt}\n" for item in fitted)
    with folder.with_suffix(".tsv").open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


def _read_sentences(path: Path) -> list[tuple[str, str]]:
    return [(pair.src, pair.tgt) for pair in read_tsv(str(path))]
