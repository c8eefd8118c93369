"""A corpus that is ready for training, as a folder."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.text.blocks import BLOCK, Cutting, plain_cuts
from regard.text.fitting import Fitted
from regard.text.ledger import Ledger, Verdict
from regard.text.report import DataReport, read_report
from regard.text.store import IdStore, write_store
from regard.text.tokenizer import Tokenizer
from regard.text.tsv import read_tsv
from regard.text.variants import Cuts
from regard.text.windows import Windows, open_store

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
