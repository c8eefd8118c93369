"""Documents become ids that a trainer can read."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from regard.text.blocks import BLOCK, plain_cuts
from regard.text.documents import Document, read_documents
from regard.text.ledger import Ledger, Verdict, hash_keys, take_stock
from regard.text.pair import Pair
from regard.text.report import N_EXAMPLES, DataReport, find, find_origins
from regard.text.split import split_valid
from regard.text.store import IdStore, write_store
from regard.text.text_job import TextJob
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import LONGEST_PIECE


def write_documents(draft: Path, job: TextJob, tokenizer: Tokenizer | None) -> tuple[Tokenizer, DataReport]:
    """Stores documents; those that occur before, or in validation or test, are left out of training."""
    data, held = job.data, [_held(job, name) for name in ("valid", "test")]
    job.say(f"reading {', '.join(data.train)}")
    ledger = _judged(job, *held)
    if tokenizer is None:
        kept = ledger.select(_as_pairs(read_documents(data.train, data.columns)), Verdict.TRAIN)
        tokenizer = job.learned(pair.tgt for pair in kept)
    valid, test = held
    split, where = _store_training(draft / "train", job, ledger, tokenizer)
    _store_held(draft / "valid", valid or split, job, tokenizer)
    _store_held(draft / "test", test, job, tokenizer)
    for name, wanted in (("train", 2), ("valid", 1)):
        if (n := len(IdStore(draft / name))) < wanted:
            raise ValueError(
                f"{', '.join(data.train)}: {wanted} or more documents of at most text.max_len {job.text.max_len} "
                f"pieces must be left for data.{name}, got {n}; add text, or raise text.max_len"
            )
    report = DataReport(
        read=len(ledger.verdicts),
        train=ledger.count(Verdict.TRAIN),
        valid=len(valid or split),
        test=len(test),
        valid_is_split=not data.valid,
        left_out=find(ledger, where),
        held_empty=0,
        origins=find_origins(ledger, data.train, data.weights or (1.0,) * len(data.train)),
        unit="documents",
    )
    return tokenizer, report


def _as_pairs(documents: Iterable[Document]) -> Iterator[Pair]:
    """Takes each document for a pair with itself, which is how a ledger judges it."""
    return (Pair(each.text, each.text, each.where, each.origin) for each in documents)


def _held(job: TextJob, name: str) -> list[Pair]:
    sources = job.data.valid if name == "valid" else job.data.test
    found = [pair for pair in _as_pairs(read_documents(sources, job.data.columns)) if pair.tgt]
    if sources and not found:
        raise ValueError(f"{', '.join(sources)}: data.{name} must have 1 document or more, got empty lines")
    return found


def _judged(job: TextJob, valid: list[Pair], test: list[Pair]) -> Ledger:
    """Says of each training document where it goes, as far as characters can tell."""
    longest = 1 if job.text.kind == "characters" else LONGEST_PIECE
    documents = _as_pairs(read_documents(job.data.train, job.data.columns))
    ledger = take_stock(documents, job.text.max_len * longest)
    for held, verdict in ((test, Verdict.IN_TEST), (valid, Verdict.IN_VALID)):
        keys = hash_keys(pair.tgt for pair in held)
        ledger = ledger.struck(ledger.sharing(keys, keys), verdict)
    return ledger if job.data.valid else split_valid(ledger, job.data.valid_size, range(len(job.data.train)))


def _store_training(
    folder: Path, job: TextJob, ledger: Ledger, tokenizer: Tokenizer
) -> tuple[list[Pair], dict[Verdict, list[str]]]:
    """Stores what is for training, and gives what is for validation; the ledger learns which do not fit."""
    split: list[tuple[Pair, list[int]]] = []
    overlong: list[tuple[Pair, list[int]]] = []
    where: dict[Verdict, list[str]] = {}
    weights = job.data.weights or (1.0,) * len(job.data.train)
    documents = _as_pairs(_noted(read_documents(job.data.train, job.data.columns), ledger, where))
    wanted = zip(
        ledger.places(Verdict.TRAIN, Verdict.VALID),
        ledger.select(documents, Verdict.TRAIN, Verdict.VALID),
        strict=True,
    )
    with write_store(folder, tokenizer.vocab_size("tgt"), 0, weights) as store:
        while block := list(islice(wanted, BLOCK)):
            ids = tokenizer.encode_batch([pair.tgt for _, pair in block], "tgt")
            fitting = []
            for (place, pair), some in zip(block, ids, strict=True):
                verdict = Verdict.OVERLONG if len(some) > job.text.max_len else Verdict(int(ledger.verdicts[place]))
                ledger.verdicts[place] = verdict
                {Verdict.OVERLONG: overlong, Verdict.VALID: split}.get(verdict, fitting).append((pair, some))
            nothing: list[list[int]] = [[] for _ in fitting]
            origins = [pair.origin for pair, _ in fitting]
            store.extend(plain_cuts(nothing), plain_cuts([some for _, some in fitting]), origins)
    where.setdefault(Verdict.OVERLONG, []).extend(pair.where for pair, _ in overlong)
    return [pair for pair, _ in split], {verdict: places[:N_EXAMPLES] for verdict, places in where.items()}


def _noted(documents: Iterable[Document], ledger: Ledger, where: dict[Verdict, list[str]]) -> Iterator[Document]:
    """Passes documents on, and notes where those that are left out stand."""
    for document, verdict in zip(documents, ledger.verdicts.tolist(), strict=True):
        if verdict not in (Verdict.TRAIN, Verdict.VALID):
            where.setdefault(Verdict(verdict), []).append(document.where)
        yield document


def _store_held(folder: Path, held: Sequence[Pair], job: TextJob, tokenizer: Tokenizer) -> None:
    with write_store(folder, tokenizer.vocab_size("tgt")) as store:
        for ids in tokenizer.encode_batch([pair.tgt for pair in held], "tgt"):
            if len(ids) <= job.text.max_len:
                store.add([], ids)
