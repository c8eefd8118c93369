"""From the settings of a text without translations to ids that a trainer can read."""

from collections.abc import Sequence
from pathlib import Path

from regard.text.ledger import take_stock
from regard.text.prepare_documents import write_documents
from regard.text.report import DataReport, Finding, find
from regard.text.running import Part, encoded, lines_of, measured, text_of
from regard.text.store import write_store
from regard.text.text_job import TextJob
from regard.text.tokenizer import Tokenizer
from regard.text.windows import Windows, write_width


def write_text(draft: Path, job: TextJob, tokenizer: Tokenizer | None) -> tuple[Tokenizer, DataReport]:
    """Writes the stores of all splits into a folder; gives the tokenizer, and what was found."""
    for name in ("valid.tsv", "test.tsv"):  # there is nothing to translate
        (draft / name).touch()
    return (_write_running if job.data.form == "text" else write_documents)(draft, job, tokenizer)


def _write_running(draft: Path, job: TextJob, tokenizer: Tokenizer | None) -> tuple[Tokenizer, DataReport]:
    """Stores running text: of each training source the last tenth is for validation, where none is given."""
    job.say(f"reading {', '.join(job.data.train)}")
    sizes = [measured(source) for source in job.data.train]
    borders = [n if job.data.valid else n * 9 // 10 for n in sizes]
    train = [Part(source, 0, border) for source, border in zip(job.data.train, borders, strict=True)]
    rest = [Part(*each) for each in zip(job.data.train, borders, sizes, strict=True)]
    valid = [Part(source, 0, measured(source)) for source in job.data.valid] or rest
    test = [Part(source, 0, measured(source)) for source in job.data.test]
    if tokenizer is None:
        keeps_lines = job.text.kind == "characters"
        tokenizer = job.learned(text for part in train for text in (text_of if keeps_lines else lines_of)(part))
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


def _store(folder: Path, parts: Sequence[Part], tokenizer: Tokenizer, width: int) -> int:
    """Stores parts of texts one behind the other, and gives the number of ids."""
    n = 0
    with write_store(folder, tokenizer.vocab_size("tgt")) as store:
        for part in parts:
            for ids in encoded(part, tokenizer):
                store.add([], ids)
                n += len(ids)
    write_width(folder, width)
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


def _nothing_left_out() -> tuple[Finding, ...]:
    return find(take_stock((), 0), {})
