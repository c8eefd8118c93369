"""The same for text without translations."""

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
    """What is to be prepared, and who is told of it."""

    data: DataSettings
    text: TextSettings
    seed: int
    log: Log

    def train_tokenizer(self, texts: Iterable[str]) -> Tokenizer:
        """Learns the pieces of texts: one vocabulary, as there is one side."""
        if self.text.kind == "characters":  # which are counted as the text goes by
            return Tokenizer((train_characters(texts, self.text.vocab_size, self.text.byte_fallback),))
        settings = replace(self.text, joint=True)
        return train_tokenizer(((text, text) for text in texts), settings, self.log, self.seed)


def write_documents(draft: Path, job: TextJob, tokenizer: Tokenizer | None) -> tuple[Tokenizer, DataReport]:
    """Stores documents; those that occur before, or in validation or test, are left out of training."""
    data, held = job.data, [_read_held_out(job, name) for name in ("valid", "test")]
    job.log(f"reading {', '.join(data.train)}")
    ledger = _scan_training(job, *held)
    if tokenizer is None:
        kept = ledger.select(_as_pairs(read_documents(data.train, data.columns)), Status.TRAIN)
        tokenizer = job.train_tokenizer(pair.tgt for pair in kept)
    valid, test = held
    split, where = _store_training(draft / "train", job, ledger, tokenizer)
    _store_held_out(draft / "valid", valid or split, job, tokenizer)
    _store_held_out(draft / "test", test, job, tokenizer)
    for name, wanted in (("train", 2), ("valid", 1)):
        if (n := len(IdStore(draft / name))) < wanted:
            raise ValueError(
                f"{', '.join(data.train)}: {wanted} or more documents of at most text.max_len {job.text.max_len} "
                f"pieces must be left for data.{name}, got {n}; add text, or raise text.max_len"
            )
    report = DataReport(
        read=len(ledger.statuses),
        train=ledger.count(Status.TRAIN),
        valid=len(valid or split),
        test=len(test),
        valid_is_split=not data.valid,
        left_out=count_left_out(ledger, where),
        held_empty=0,
        origins=count_origins(ledger, data.train, data.weights or (1.0,) * len(data.train)),
        unit="documents",
    )
    return tokenizer, report


def _as_pairs(documents: Iterable[Document]) -> Iterator[Pair]:
    """Takes each document for a pair with itself, which is how a ledger judges it."""
    return (Pair(each.text, each.text, each.where, each.origin) for each in documents)


def _read_held_out(job: TextJob, name: str) -> list[Pair]:
    sources = job.data.valid if name == "valid" else job.data.test
    found = [pair for pair in _as_pairs(read_documents(sources, job.data.columns)) if pair.tgt]
    if sources and not found:
        raise ValueError(f"{', '.join(sources)}: data.{name} must have 1 document or more, got empty lines")
    return found


def _scan_training(job: TextJob, valid: list[Pair], test: list[Pair]) -> PairIndex:
    """Says of each training document where it goes, as far as characters can tell."""
    longest = 1 if job.text.kind == "characters" else LONGEST_PIECE
    documents = _as_pairs(read_documents(job.data.train, job.data.columns))
    ledger = scan(documents, job.text.max_len * longest)
    for held, verdict in ((test, Status.IN_TEST), (valid, Status.IN_VALID)):
        keys = hash_keys(pair.tgt for pair in held)
        ledger = ledger.mark(ledger.overlapping(keys, keys), verdict)
    return ledger if job.data.valid else split_valid(ledger, job.data.valid_size, range(len(job.data.train)))


def _store_training(
    folder: Path, job: TextJob, ledger: PairIndex, tokenizer: Tokenizer
) -> tuple[list[Pair], dict[Status, list[str]]]:
    """Stores what is for training, and gives what is for validation; the ledger learns which do not fit."""
    split: list[tuple[Pair, list[int]]] = []
    overlong: list[tuple[Pair, list[int]]] = []
    where: dict[Status, list[str]] = {}
    weights = job.data.weights or (1.0,) * len(job.data.train)
    documents = _as_pairs(_note_examples(read_documents(job.data.train, job.data.columns), ledger, where))
    wanted = zip(
        ledger.indices(Status.TRAIN, Status.VALID),
        ledger.select(documents, Status.TRAIN, Status.VALID),
        strict=True,
    )
    with write_store(folder, tokenizer.vocab_size("tgt"), 0, weights) as store:
        while block := list(islice(wanted, BLOCK)):
            ids = tokenizer.encode_batch([pair.tgt for _, pair in block], "tgt")
            fitting = []
            for (place, pair), some in zip(block, ids, strict=True):
                verdict = Status.OVERLONG if len(some) > job.text.max_len else Status(int(ledger.statuses[place]))
                ledger.statuses[place] = verdict
                {Status.OVERLONG: overlong, Status.VALID: split}.get(verdict, fitting).append((pair, some))
            nothing: list[list[int]] = [[] for _ in fitting]
            origins = [pair.origin for pair, _ in fitting]
            store.extend(plain_segmentations(nothing), plain_segmentations([some for _, some in fitting]), origins)
    where.setdefault(Status.OVERLONG, []).extend(pair.where for pair, _ in overlong)
    return [pair for pair, _ in split], {verdict: places[:N_EXAMPLES] for verdict, places in where.items()}


def _note_examples(
    documents: Iterable[Document], ledger: PairIndex, where: dict[Status, list[str]]
) -> Iterator[Document]:
    """Passes documents on, and notes where those that are left out stand."""
    for document, verdict in zip(documents, ledger.statuses.tolist(), strict=True):
        if verdict not in (Status.TRAIN, Status.VALID):
            where.setdefault(Status(verdict), []).append(document.where)
        yield document


def _store_held_out(folder: Path, held: Sequence[Pair], job: TextJob, tokenizer: Tokenizer) -> None:
    with write_store(folder, tokenizer.vocab_size("tgt")) as store:
        for ids in tokenizer.encode_batch([pair.tgt for pair in held], "tgt"):
            if len(ids) <= job.text.max_len:
                store.add([], ids)


@dataclass(frozen=True)
class TextRange:
    """The characters of a file from one place up to another."""

    source: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def count_characters(source: str) -> int:
    """Counts the characters of a file."""
    return sum(len(block) for block in read_blocks(source))


def read_range(part: TextRange) -> Iterator[str]:
    """Gives the text of a part, block by block."""
    at = 0
    for block in read_blocks(part.source):
        if text := block[max(0, part.start - at) : max(0, part.stop - at)]:
            yield text
        at += len(block)


def range_lines(part: TextRange) -> Iterator[str]:
    """Gives the lines of a part; a line feed alone ends one."""
    rest = ""
    for block in read_range(part):
        *lines, rest = (rest + block).split("\n")
        yield from lines
    yield rest


def encode_range(part: TextRange, tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Gives the ids of a part, some at a time: characters as they come, other pieces line by line without line ends."""
    if tokenizer.exact:
        return (tokenizer.encode(block, "tgt") for block in read_range(part))
    return (tokenizer.encode(line, "tgt") for line in range_lines(part))


def write_text(draft: Path, job: TextJob, tokenizer: Tokenizer | None) -> tuple[Tokenizer, DataReport]:
    """Writes the stores of all splits into a folder; gives the tokenizer, and what was found."""
    for name in ("valid.tsv", "test.tsv"):  # there is nothing to translate
        (draft / name).touch()
    return (write_running_text if job.data.form == "text" else write_documents)(draft, job, tokenizer)


def write_running_text(draft: Path, job: TextJob, tokenizer: Tokenizer | None) -> tuple[Tokenizer, DataReport]:
    """Stores running text: of each training source the last tenth is for validation, where none is given."""
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
            text for part in train for text in (read_range if keeps_lines else range_lines)(part)
        )
    splits = {"train": train, "valid": valid, "test": test}
    counts = {name: _store(draft / name, parts, tokenizer, job.text.max_len) for name, parts in splits.items()}
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


def _store(folder: Path, parts: Sequence[TextRange], tokenizer: Tokenizer, width: int) -> int:
    """Stores parts of texts one behind the other, and gives the number of ids."""
    n = 0
    with write_store(folder, tokenizer.vocab_size("tgt")) as store:
        for part in parts:
            for ids in encode_range(part, tokenizer):
                store.add([], ids)
                n += len(ids)
    write_window_width(folder, width)
    return n


def _check_running(draft: Path, job: TextJob, counts: dict[str, int]) -> None:
    needed = 2 * job.text.max_len - 1
    if not len(Windows(draft / "train")):
        raise ValueError(
            f"{', '.join(job.data.train)}: a text must have {needed} pieces or more for windows of text.max_len "
            f"{job.text.max_len}, got {counts['train']}; add text, or lower text.max_len"
        )
    for name in ("valid", "test"):
        if counts[name] < 2 and (name == "valid" or job.data.test):
            raise ValueError(f"data.{name} must have 2 pieces or more, got {counts[name]}; add text")


def _nothing_left_out() -> tuple[LeftOut, ...]:
    return count_left_out(scan((), 0), {})
