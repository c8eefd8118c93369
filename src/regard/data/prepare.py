"""From the settings of a corpus to a dataset on disk: checks, fingerprint, preparation."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from regard.atomic import atomic_folder, write_checksums
from regard.config import DataSettings, TextSettings
from regard.data.cleaning import (
    N_EXAMPLES,
    REASONS,
    DataReport,
    EncodedPair,
    PairIndex,
    Status,
    count_left_out,
    count_origins,
    encode_pairs,
    hash_keys,
    scan,
    split_valid,
    write_report,
)
from regard.data.dataset import (
    FINGERPRINT,
    REPORT,
    Dataset,
    StoreLayout,
    is_data_file,
    make_variant_sampler,
    open_dataset,
    write_held_out,
    write_train,
)
from regard.data.files import check_file, copy_stdin
from regard.data.fingerprint import differences, fingerprint, read_fingerprint
from regard.data.formats import check_excluded_files, check_sources, read_pairs, read_sentences
from regard.data.normalise import Pair, simplified_sides, simplify
from regard.data.prepare_text import TextJob, write_text
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import LONGEST_PIECE, check_symbols, train_tokenizer

MAX_VARIANTS = 255


def check_pair_settings(data: DataSettings, text: TextSettings, tokenizer: Tokenizer | None) -> None:
    """Raise ValueError naming the first setting that is wrong for sentence pairs."""
    if not data.train:
        raise ValueError("data.train must name the training text, got nothing")
    if data.valid_size < 1:
        raise ValueError(f"data.valid_size must be 1 or more, got {data.valid_size}")
    _check_mixture(data, text)
    _check_text_numbers(text)
    check_symbols(text.symbols)
    if tokenizer is not None and (missing := [symbol for symbol in text.symbols if symbol not in tokenizer.symbols]):
        raise ValueError(
            f"text.symbols must be symbols of the given tokenizer, got {missing[0]!r}; "
            f"it has {', '.join(sorted(tokenizer.symbols)) or 'none'}: leave it out, or train another tokenizer"
        )
    check_sources((*data.train, *data.valid, *data.test))
    check_excluded_files(data.exclude)


def check_text_settings(data: DataSettings, text: TextSettings, tokenizer: Tokenizer | None) -> None:
    """Raise ValueError naming the first setting that is wrong for text without translations."""
    if not data.train:
        raise ValueError("data.train must name the training text, got nothing")
    if data.valid_size < 1:
        raise ValueError(f"data.valid_size must be 1 or more, got {data.valid_size}")
    pairs_only: dict[str, object] = {"data.tags": data.tags, "data.reverse": data.reverse, "data.exclude": data.exclude}
    pairs_only |= {"text.sampling": text.sampling, "text.symbols": text.symbols}
    documents_only = {} if data.form == "documents" else {"data.weights": data.weights, "data.columns": data.columns}
    for name, value in (pairs_only | documents_only).items():
        if value:
            raise ValueError(f"{name} has no meaning for data.form {data.form!r}, got {value!r}: leave it out")
    _check_mixture(data, text)
    _check_text_numbers(text)
    if text.max_len < 2:
        raise ValueError(f"text.max_len must be 2 or more for data.form {data.form!r}, got {text.max_len}")
    if wrong := [column for column in data.columns if column < 1]:
        raise ValueError(f"data.columns must be counted from 1, got {wrong[0]}")
    for source in (*data.train, *data.valid, *data.test):
        if source != "-":
            check_file(source)


def _check_mixture(data: DataSettings, text: TextSettings) -> None:
    for name, values in (("weights", data.weights), ("tags", data.tags)):
        if values and len(values) != len(data.train):
            n = len(values)
            raise ValueError(
                f"data.{name} must have one entry for each source of data.train, got {n} for {len(data.train)}"
            )
    for weight in data.weights:
        if not 0 < weight < float("inf"):
            raise ValueError(
                f"data.weights must be positive numbers, got {weight}; leave out a source that is not wanted"
            )
    for tag in data.tags:
        if tag and tag not in text.symbols:
            raise ValueError(
                f"data.tags must be symbols of text.symbols, or empty, got {tag!r}; "
                f"text.symbols are {', '.join(text.symbols) or 'none'}: add it there"
            )


def _check_text_numbers(text: TextSettings) -> None:
    if text.max_len < 1:
        raise ValueError(f"text.max_len must be 1 or more, got {text.max_len}")
    if text.max_ratio < 1:
        raise ValueError(f"text.max_ratio must be 1 or more, got {text.max_ratio}")
    if not 0 <= text.sampling <= 1:
        raise ValueError(f"text.sampling must lie in 0 … 1, got {text.sampling}")
    if not 1 <= text.variants <= MAX_VARIANTS:
        raise ValueError(f"text.variants must lie in 1 … {MAX_VARIANTS}, got {text.variants}")


EVERY = 4096  # pairs between two ticks

Log = Callable[[str], None]
Tick = Callable[[int], None]
Examples = dict[Status, list[str]]


@dataclass(frozen=True)
class PairJob:
    """A corpus of sentence pairs to prepare, and where to report progress."""

    data: DataSettings
    text: TextSettings
    seed: int
    log: Log
    tick: Tick

    @property
    def weights(self) -> tuple[float, ...]:
        """How often an epoch sees a pair of each training source."""
        return self.data.weights or (1.0,) * len(self.data.train)

    def read(self, sources: Sequence[str]) -> Iterator[Pair]:
        """Yield the pairs of sources, reversed if the settings say so."""
        n = 0
        simplified = simplified_sides(self.data.src_lang, self.data.tgt_lang) if self.text.simplify else frozenset()
        for origin, source in enumerate(sources):
            for pair in read_pairs((source,), *self.languages()):
                pair = replace(pair, src=pair.tgt, tgt=pair.src) if self.data.reverse else pair
                pair = (
                    replace(pair, **{side: simplify(getattr(pair, side)) for side in simplified})
                    if simplified
                    else pair
                )
                n += 1
                if n % EVERY == 0:
                    self.tick(EVERY)
                yield replace(pair, origin=origin) if origin else pair
        self.tick(n % EVERY)

    def languages(self) -> tuple[str, str]:
        """Return the languages in the order of the files."""
        src, tgt = self.data.src_lang, self.data.tgt_lang
        return (tgt, src) if self.data.reverse else (src, tgt)

    def add_tag(self, pair: Pair) -> Pair:
        """Put the tag of its source before a training pair."""
        tag = self.data.tags[pair.origin] if self.data.tags else ""
        return replace(pair, src=f"{tag} {pair.src}") if tag else pair


@dataclass(frozen=True)
class Resumed:
    """What a run that goes on brings along: the tokenizer of its weights, and whether its text may have changed."""

    tokenizer: Tokenizer
    accept_new_data: bool


@dataclass(frozen=True)
class HeldOut:
    """Validation or test pairs, without those that have an empty side."""

    pairs: list[Pair]
    n_empty: int


def prepare(
    data: DataSettings,
    text: TextSettings,
    folder: Path,
    log: Log,
    seed: int,
    tokenizer: Tokenizer | None = None,
    tick: Tick = lambda n: None,
    resumed: Resumed | None = None,
) -> Dataset:
    """Read a corpus, clean it, train a tokenizer and store the ids in `folder/data`; reuse it if nothing has changed.

    The text is streamed three times: to classify each pair, to train the tokenizer, and to encode. Memory holds 27
    bytes a pair, at most a million sentences for the tokenizer, and the validation and test text. `tick` is called
    with the number of pairs read since the last call. A run that is resumed keeps its tokenizer, and stops if the text
    has changed unless it was told to accept that.
    """
    (check_pair_settings if data.form == "pairs" else check_text_settings)(data, text, tokenizer)
    with copy_stdin(data, folder) as data:
        earlier = read_fingerprint(folder / "data")
        mark = fingerprint(data, text, seed, tokenizer, earlier)
        changes = differences(earlier, json.loads(mark)) if earlier else ["it is not there"]
        dataset = None if changes else _open_unchanged(folder / "data", log)
        if dataset is None:
            _check_changes(folder, changes if earlier else [], resumed, log)
            tokenizer = resumed.tokenizer if resumed else tokenizer
            if data.form == "pairs":
                _write_pairs(folder / "data", PairJob(data, text, seed, log, tick), tokenizer, mark)
            else:
                _write_text(folder / "data", TextJob(data, text, seed, log), tokenizer, mark)
            dataset = open_dataset(folder / "data")
    for line in dataset.report.lines():
        log(line)
    return dataset


def _check_changes(folder: Path, changes: Sequence[str], resumed: Resumed | None, log: Log) -> None:
    """Raise ValueError if a run is resumed on another text, or say what has changed."""
    said = "; ".join(changes[:3]) + (f"; and {len(changes) - 3} more" if len(changes) > 3 else "")
    if resumed and changes and not resumed.accept_new_data:
        raise ValueError(
            f"{folder}: a resumed run goes on with its text, got another: {said}: restore it, or accept it with "
            "--accept-new-data, which keeps the run's tokenizer and weights"
        )
    if changes:
        log(f"preparing the text again: {said}" + (" (the run keeps its tokenizer)" if resumed else ""))


def _open_unchanged(folder: Path, log: Log) -> Dataset | None:
    try:
        dataset = open_dataset(folder)
    except ValueError as error:
        log(f"preparing the text again: {error}")
        return None
    log(f"the prepared text in {folder} is unchanged and is used again")
    return dataset


def _write_pairs(target: Path, job: PairJob, tokenizer: Tokenizer | None, mark: str) -> None:
    valid, test = _read_held_out(job, "data.valid"), _read_held_out(job, "data.test")
    index = _scan_training(job, valid, test)
    if tokenizer is None:
        training = index.select(job.read(job.data.train), Status.TRAIN)
        tokenizer = train_tokenizer(((pair.src, pair.tgt) for pair in training), job.text, job.log, job.seed)
    often = f", each in {1 + job.text.variants} segmentations" if job.text.sampling else ""
    job.log(f"encoding {index.count(Status.TRAIN):,} pairs{often}")
    with atomic_folder(target, is_data_file) as draft:
        report = _write_splits(draft, job, index, tokenizer, (valid, test))
        write_report(report, draft / REPORT)
        tokenizer.save(draft)
        write_checksums(draft)
        (draft / FINGERPRINT).write_text(mark, encoding="utf-8")


def _write_text(target: Path, job: TextJob, tokenizer: Tokenizer | None, mark: str) -> None:
    with atomic_folder(target, is_data_file) as draft:
        tokenizer, report = write_text(draft, job, tokenizer)
        write_report(report, draft / REPORT)
        tokenizer.save(draft)
        write_checksums(draft)
        (draft / FINGERPRINT).write_text(mark, encoding="utf-8")


def _read_held_out(job: PairJob, setting: str) -> HeldOut:
    sources = job.data.valid if setting == "data.valid" else job.data.test
    pairs = list(job.read(sources))
    full = [pair for pair in pairs if pair.src and pair.tgt]
    if sources and not full:
        raise ValueError(f"{', '.join(sources)}: {setting} must have 1 pair or more, got {len(pairs)} with empty sides")
    return HeldOut(full, len(pairs) - len(full))


def _scan_training(job: PairJob, valid: HeldOut, test: HeldOut) -> PairIndex:
    """Classify the training pairs, as far as it is possible without a tokenizer."""
    job.log(f"reading {', '.join(job.data.train)}")
    # A side with more characters is too long in any tokenization.
    index = scan(job.read(job.data.train), job.text.max_len * LONGEST_PIECE)
    if not len(index.statuses):
        raise ValueError(f"{', '.join(job.data.train)}: the text must have sentence pairs, got an empty file")
    for held_out, status in ((test, Status.IN_TEST), (valid, Status.IN_VALID)):
        src, tgt = hash_keys(pair.src for pair in held_out.pairs), hash_keys(pair.tgt for pair in held_out.pairs)
        index = index.mark(index.overlapping(src, tgt), status)
    out = hash_keys(read_sentences(job.data.exclude, job.data.src_lang, job.data.tgt_lang))
    index = index.mark(index.overlapping(out, out), Status.EXCLUDED)
    if not job.data.valid:
        index = _split(job, index)
    if index.count(Status.TRAIN) < 2:
        raise ValueError(_too_few(job, index))
    return index


def _split(job: PairJob, index: PairIndex) -> PairIndex:
    """Split a validation set off the sources without a tag, if there are any: they are what users will translate."""
    tags = job.data.tags or ("",) * len(job.data.train)
    untagged = [origin for origin, tag in enumerate(tags) if not tag]
    try:
        return split_valid(index, job.data.valid_size, untagged or range(len(tags)))
    except ValueError as error:
        raise ValueError(f"{', '.join(job.data.train)}: {error}") from error


def _too_few(job: PairJob, index: PairIndex) -> str:
    reasons = "; ".join(f"{reason.count} {reason.what}" for reason in count_left_out(index, {}) if reason.count)
    return (
        f"{', '.join(job.data.train)}: 2 training pairs or more must be left, "
        f"got {index.count(Status.TRAIN)} of {len(index.statuses)} ({reasons or 'none left out'}); add text"
    )


def _write_splits(
    draft: Path, job: PairJob, index: PairIndex, tokenizer: Tokenizer, held_out: tuple[HeldOut, HeldOut]
) -> DataReport:
    """Write the stores and sentences of all splits."""
    vocab_size = max(tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt"))
    examples: Examples = defaultdict(list)
    pairs = _note_examples(job.read(job.data.train), index, examples)
    wanted = map(job.add_tag, index.select(pairs, Status.TRAIN, Status.VALID))
    encoded = _note_misfits(encode_pairs(wanted, tokenizer, job.text), examples)
    layout = StoreLayout(vocab_size, job.weights, make_variant_sampler(tokenizer, job.text, job.seed))
    split = write_train(draft, index, encoded, layout)
    valid, test = (list(encode_pairs(each.pairs, tokenizer, job.text)) for each in held_out)
    valid = valid or split
    write_held_out(draft / "valid", valid, vocab_size)
    write_held_out(draft / "test", test, vocab_size)
    if index.count(Status.TRAIN) < 2:
        raise ValueError(_too_few(job, index))
    if all(item.status is not Status.TRAIN for item in valid):
        raise ValueError(
            f"validation must have 1 pair or more with at most {job.text.max_len} tokens a side, got 0 of "
            f"{len(valid)}; raise text.max_len"
        )
    return DataReport(
        read=len(index.statuses),
        train=index.count(Status.TRAIN),
        valid=len(valid),
        test=len(test),
        valid_is_split=not job.data.valid,
        left_out=count_left_out(index, examples),
        held_empty=sum(each.n_empty for each in held_out),
        origins=count_origins(index, job.data.train, job.weights),
    )


def _note_examples(pairs: Iterable[Pair], index: PairIndex, examples: Examples) -> Iterator[Pair]:
    """Pass pairs on, and note the places of the first ones left out for each reason."""
    wanted = {int(i): status for status in REASONS for i in index.indices(status)[:N_EXAMPLES]}
    for n, pair in enumerate(pairs):
        if n in wanted:
            examples[wanted[n]].append(pair.where)
        yield pair


def _note_misfits(pairs: Iterable[EncodedPair], examples: Examples) -> Iterator[EncodedPair]:
    for item in pairs:
        if item.status is not Status.TRAIN and len(examples[item.status]) < N_EXAMPLES:
            examples[item.status].append(item.pair.where)
        yield item
