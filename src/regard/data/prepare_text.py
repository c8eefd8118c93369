"""Preparation of text without translations: running text and documents."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from regard.config import DataSettings, TextSettings
from regard.data.cleaning import (
    N_EXAMPLES,
    DataReport,
    LeftOut,
    PairIndex,
    Status,
    count_left_out,
    count_origins,
    hash_keys,
    scan,
    split_valid,
)
from regard.data.dataset import BLOCK, plain_segmentations
from regard.data.formats import Document, read_blocks, read_documents
from regard.data.normalise import Pair
from regard.data.store import IdStore, Windows, write_store, write_window_width
from regard.data.tokenizer import Tokenizer, train_characters
from regard.data.vocabulary import LONGEST_PIECE, Log, train_tokenizer


@dataclass(frozen=True)
class TextJob:
    """A corpus without translations to prepare, and where to report progress."""

    data: DataSettings
    text: TextSettings
    seed: int
    log: Log

    def train_tokenizer(self, texts: Iterable[str]) -> Tokenizer:
        """Train one vocabulary, as there is one side."""
        if self.text.kind == "characters":  # counted in a stream, without a sample
            return Tokenizer((train_characters(texts, self.text.vocab_size, self.text.byte_fallback),))
        settings = replace(self.text, joint=True)
        return train_tokenizer(((text, text) for text in texts), settings, self.log, self.seed)


def write_documents(draft: Path, job: TextJob, tokenizer: Tokenizer | None) -> tuple[Tokenizer, DataReport]:
    """Store documents; duplicates and those that occur in validation or test are left out of training."""
    data = job.data
    valid, test = (_read_held_out(job, name) for name in ("valid", "test"))
    job.log(f"reading {', '.join(data.train)}")
    index = _scan_training(job, valid, test)
    if tokenizer is None:
        training = index.select(_as_pairs(read_documents(data.train, data.columns)), Status.TRAIN)
        tokenizer = job.train_tokenizer(pair.tgt for pair in training)
    split, where = _store_training(draft / "train", job, index, tokenizer)
    _store_held_out(draft / "valid", valid or split, job, tokenizer)
    _store_held_out(draft / "test", test, job, tokenizer)
    for name, wanted in (("train", 2), ("valid", 1)):
        if (n := len(IdStore(draft / name))) < wanted:
            raise ValueError(
                f"{', '.join(data.train)}: {wanted} or more documents of at most text.max_len {job.text.max_len} "
                f"tokens must be left for data.{name}, got {n}; add text, or raise text.max_len"
            )
    report = DataReport(
        read=len(index.statuses),
        train=index.count(Status.TRAIN),
        valid=len(valid or split),
        test=len(test),
        valid_is_split=not data.valid,
        left_out=count_left_out(index, where),
        held_empty=0,
        origins=count_origins(index, data.train, data.weights or (1.0,) * len(data.train)),
        unit="documents",
    )
    return tokenizer, report


def _as_pairs(documents: Iterable[Document]) -> Iterator[Pair]:
    """Yield each document as a pair with itself, for a PairIndex."""
    return (Pair(each.text, each.text, each.where, each.origin) for each in documents)


def _read_held_out(job: TextJob, name: str) -> list[Pair]:
    sources = job.data.valid if name == "valid" else job.data.test
    pairs = [pair for pair in _as_pairs(read_documents(sources, job.data.columns)) if pair.tgt]
    if sources and not pairs:
        raise ValueError(f"{', '.join(sources)}: data.{name} must have 1 document or more, got empty lines")
    return pairs


def _scan_training(job: TextJob, valid: list[Pair], test: list[Pair]) -> PairIndex:
    """Classify the training documents, as far as it is possible without a tokenizer."""
    longest = 1 if job.text.kind == "characters" else LONGEST_PIECE
    documents = _as_pairs(read_documents(job.data.train, job.data.columns))
    index = scan(documents, job.text.max_len * longest)
    for held_out, status in ((test, Status.IN_TEST), (valid, Status.IN_VALID)):
        keys = hash_keys(pair.tgt for pair in held_out)
        index = index.mark(index.overlapping(keys, keys), status)
    return index if job.data.valid else split_valid(index, job.data.valid_size, range(len(job.data.train)))


def _store_training(
    folder: Path, job: TextJob, index: PairIndex, tokenizer: Tokenizer
) -> tuple[list[Pair], dict[Status, list[str]]]:
    """Store the training documents and return those split off for validation; mark those that are too long."""
    split: list[tuple[Pair, list[int]]] = []
    overlong: list[tuple[Pair, list[int]]] = []
    where: dict[Status, list[str]] = {}
    weights = job.data.weights or (1.0,) * len(job.data.train)
    documents = _as_pairs(_note_examples(read_documents(job.data.train, job.data.columns), index, where))
    wanted = zip(
        index.indices(Status.TRAIN, Status.VALID),
        index.select(documents, Status.TRAIN, Status.VALID),
        strict=True,
    )
    with write_store(folder, tokenizer.vocab_size("tgt"), 0, weights) as store:
        while block := list(islice(wanted, BLOCK)):
            ids = tokenizer.encode_batch([pair.tgt for _, pair in block], "tgt")
            fitting = []
            for (i, pair), some in zip(block, ids, strict=True):
                status = Status.OVERLONG if len(some) > job.text.max_len else Status(int(index.statuses[i]))
                index.statuses[i] = status
                {Status.OVERLONG: overlong, Status.VALID: split}.get(status, fitting).append((pair, some))
            nothing: list[list[int]] = [[] for _ in fitting]
            origins = [pair.origin for pair, _ in fitting]
            store.extend(plain_segmentations(nothing), plain_segmentations([some for _, some in fitting]), origins)
    where.setdefault(Status.OVERLONG, []).extend(pair.where for pair, _ in overlong)
    return [pair for pair, _ in split], {status: examples[:N_EXAMPLES] for status, examples in where.items()}


def _note_examples(
    documents: Iterable[Document], index: PairIndex, where: dict[Status, list[str]]
) -> Iterator[Document]:
    """Pass documents on, and note the places of those that are left out."""
    for document, status in zip(documents, index.statuses.tolist(), strict=True):
        if status not in (Status.TRAIN, Status.VALID):
            where.setdefault(Status(status), []).append(document.where)
        yield document


def _store_held_out(folder: Path, pairs: Sequence[Pair], job: TextJob, tokenizer: Tokenizer) -> None:
    with write_store(folder, tokenizer.vocab_size("tgt")) as store:
        for ids in tokenizer.encode_batch([pair.tgt for pair in pairs], "tgt"):
            if len(ids) <= job.text.max_len:
                store.add([], ids)


@dataclass(frozen=True)
class TextRange:
    """The characters of a file from `start` up to `stop`."""

    source: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def count_characters(source: str) -> int:
    return sum(len(block) for block in read_blocks(source))


def read_range(span: TextRange) -> Iterator[str]:
    """Yield the text of a range in blocks."""
    at = 0
    for block in read_blocks(span.source):
        if text := block[max(0, span.start - at) : max(0, span.stop - at)]:
            yield text
        at += len(block)


def range_lines(span: TextRange) -> Iterator[str]:
    r"""Yield the lines of a range; only \n ends a line."""
    rest = ""
    for block in read_range(span):
        *lines, rest = (rest + block).split("\n")
        yield from lines
    yield rest


def encode_range(span: TextRange, tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Yield the ids of a range in blocks: characters block by block, other tokens line by line without line ends."""
    if tokenizer.exact:
        return (tokenizer.encode(block, "tgt") for block in read_range(span))
    return (tokenizer.encode(line, "tgt") for line in range_lines(span))


def write_text(draft: Path, job: TextJob, tokenizer: Tokenizer | None) -> tuple[Tokenizer, DataReport]:
    """Write the stores of all splits into a folder; return the tokenizer and the report."""
    for name in ("valid.tsv", "test.tsv"):  # empty: there is nothing to translate
        (draft / name).touch()
    return (write_running_text if job.data.form == "text" else write_documents)(draft, job, tokenizer)


def write_running_text(draft: Path, job: TextJob, tokenizer: Tokenizer | None) -> tuple[Tokenizer, DataReport]:
    """Store running text; without validation text, use the last tenth of each training source."""
    job.log(f"reading {', '.join(job.data.train)}")
    sizes = [count_characters(source) for source in job.data.train]
    borders = [n if job.data.valid else n * 9 // 10 for n in sizes]
    train = [TextRange(source, 0, border) for source, border in zip(job.data.train, borders, strict=True)]
    rest = [TextRange(*each) for each in zip(job.data.train, borders, sizes, strict=True)]
    valid = [TextRange(source, 0, count_characters(source)) for source in job.data.valid] or rest
    test = [TextRange(source, 0, count_characters(source)) for source in job.data.test]
    if tokenizer is None:
        keeps_lines = job.text.kind == "characters"
        tokenizer = job.train_tokenizer(
            text for span in train for text in (read_range if keeps_lines else range_lines)(span)
        )
    splits = {"train": train, "valid": valid, "test": test}
    counts = {name: _store(draft / name, ranges, tokenizer, job.text.max_len) for name, ranges in splits.items()}
    _check_running(draft, job, counts)
    report = DataReport(
        read=sum(sizes),
        train=sum(map(len, train)),
        valid=sum(map(len, valid)),
        test=sum(map(len, test)),
        valid_is_split=not job.data.valid,
        left_out=_nothing_left_out(),
        held_empty=0,
        unit="characters",
    )
    return tokenizer, report


def _store(folder: Path, ranges: Sequence[TextRange], tokenizer: Tokenizer, width: int) -> int:
    """Store ranges of text one after the other, and return the number of ids."""
    n = 0
    with write_store(folder, tokenizer.vocab_size("tgt")) as store:
        for span in ranges:
            for ids in encode_range(span, tokenizer):
                store.add([], ids)
                n += len(ids)
    write_window_width(folder, width)
    return n


def _check_running(draft: Path, job: TextJob, counts: dict[str, int]) -> None:
    needed = 2 * job.text.max_len - 1
    if not len(Windows(draft / "train")):
        raise ValueError(
            f"{', '.join(job.data.train)}: a text must have {needed} tokens or more for windows of text.max_len "
            f"{job.text.max_len}, got {counts['train']}; add text, or lower text.max_len"
        )
    for name in ("valid", "test"):
        if counts[name] < 2 and (name == "valid" or job.data.test):
            raise ValueError(f"data.{name} must have 2 tokens or more, got {counts[name]}; add text")


def _nothing_left_out() -> tuple[LeftOut, ...]:
    return count_left_out(scan((), 0), {})
