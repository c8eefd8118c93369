"""The filter for parallel text: a pass that takes a sample, and one that judges every pair, says why, and writes."""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, runtime_checkable

import numpy as np

from regard.atomic import atomic_file
from regard.clean.duplicates import SeenKeys
from regard.clean.judging import Judgement, decide, judge
from regard.clean.learning import CleanSettings, CorpusModel, learn, take_sample
from regard.clean.noise import Texts
from regard.clean.reading import read_chunks, readable_twice
from regard.clean.report import NAMES, CleanReport, DroppedPair
from regard.clean.rules import ALWAYS, CODES, REASONS
from regard.clean.workers import start_workers
from regard.config import DataSettings, unknown
from regard.data.files import open_compressed

Log = Callable[[str], None]
Write = Callable[[str], object]
SHOWN_PROBLEMS = 5  # that are reported one by one
STDOUT = Path("-")


@runtime_checkable
class Reader(Protocol):
    """Judges again what a first look leaves in doubt."""

    def read(self, judged: Judgement, everything: bool) -> Judgement: ...


LearnReader = Callable[[CorpusModel, Sequence[Sequence[Texts]]], Reader]


@dataclass(frozen=True)
class CleanOutputs:
    """Where pairs go: those that are kept, and if wanted those that are dropped; with or without their scores."""

    kept: Path  # or STDOUT
    rejected: Path | None = None
    scores: bool = False


def clean(
    sources: Sequence[str],
    outputs: CleanOutputs,
    settings: CleanSettings,
    n_workers: int = 1,
    log: Log = lambda _: None,
    learn_reader: LearnReader | None = None,
) -> CleanReport:
    """Write the pairs of all sources that are worth learning from, in their order, and report on the others."""
    check_settings(settings)
    with ExitStack() as stack:
        files = stack.enter_context(readable_twice(sources))
        folder = Path(stack.enter_context(TemporaryDirectory()))
        workers = stack.enter_context(start_workers(n_workers))
        write, reject = (stack.enter_context(_open(path)) for path in (outputs.kept, outputs.rejected))
        codes = [code or default for code, default in zip(settings.languages, UNNAMED, strict=True)]
        sample, n = take_sample(read_chunks(files, codes[0], codes[1], lambda _: None))
        log(f"{n:,} lines read, {len(sample):,} of them to learn from")
        model, examples = learn(sample, settings, workers, folder, log)
        del sample
        reader = None if learn_reader is None or model.folder is None else learn_reader(model, examples)
        report = CleanReport(model.languages, model.shares)
        chunks = read_chunks(files, codes[0], codes[1], log)
        run = _Run(settings, outputs.scores, report, write, reject, log)
        for judged in workers(partial(judge, model), chunks):
            run.take(judged if reader is None else reader.read(judged, outputs.scores))
    run.report_problems()
    return report


UNNAMED = (DataSettings.src_lang, DataSettings.tgt_lang)


def check_settings(settings: CleanSettings) -> None:
    """Raise ValueError for the first setting that is wrong."""
    rules = [reason for reason in REASONS if reason not in ALWAYS]
    for name in sorted(settings.skip):
        if name not in rules:
            raise ValueError(unknown(name, rules, "rule to skip"))
    if not 0 < settings.threshold < 1:
        raise ValueError(f"the threshold must be a probability between 0 and 1, got {settings.threshold}")
    if settings.max_chars < 1:
        raise ValueError(f"a side must be allowed 1 character or more, got {settings.max_chars}")


@contextmanager
def _open(path: Path | None) -> Iterator[Write | None]:
    """Yield what writes a line: to a file that is whole or not at all, to standard output, or to nothing."""
    if path is None:
        yield None
    elif path == STDOUT:
        yield lambda line: sys.stdout.write(f"{line}\n")
    else:
        with atomic_file(path) as draft, open_compressed(draft, path.name) as file:
            yield lambda line: file.write(f"{line}\n".encode("utf-8", "replace"))


class _Run:
    """One pass over judged chunks: duplicates, writing, counting."""

    def __init__(
        self,
        settings: CleanSettings,
        scores: bool,
        report: CleanReport,
        write: Write | None,
        reject: Write | None,
        log: Log,
    ):
        self.settings, self.scores, self.report = settings, scores, report
        self.write, self.reject, self.log = write, reject, log
        self.exact, self.near = SeenKeys(), SeenKeys()
        self.rng = random.Random(settings.seed)
        self.n_problems = 0

    def take(self, judged: Judgement) -> None:
        """Decide on the pairs of a chunk, and write them."""
        settings = self.settings
        codes = self._repeated(decide(judged, settings.threshold, settings.skip))
        noise = judged.noise
        self.report.read += len(codes)
        self.report.kept += int(np.count_nonzero(codes == 0))
        for i, code in enumerate(codes.tolist()):
            line = judged.lines[i]
            if line.problem is not None:
                self._report_problem(line.problem)
            if code == 0 and self.write is not None:
                self.write("\t".join((line.src, line.tgt, *self._scores(judged, i))))
            elif code:
                self.report.add(code, DroppedPair(line.where, line.src, line.tgt, round(float(noise[i]), 4)), self.rng)
                if self.reject is not None:
                    what = NAMES[code], line.where, line.src, line.tgt
                    self.reject("\t".join((*what, *self._scores(judged, i))))

    def _repeated(self, judged: Judgement) -> np.ndarray:
        """Mark pairs that were there before, among those that are left, as they are or nearly."""
        codes = judged.codes
        for name, keys, seen in zip(("duplicate", "near-duplicate"), judged.keys, (self.exact, self.near), strict=True):
            left = np.flatnonzero(codes == 0)
            if name not in self.settings.skip:
                codes[left[seen.add(keys[left])]] = CODES[name]
        return codes

    def _scores(self, judged: Judgement, i: int) -> tuple[str, ...]:
        """Return the probability of noise, log-odds of other languages, and the dual cross-entropy of two models."""
        if not self.scores:
            return ()
        shown = [judged.noise[i], *judged.odds[i]]
        costs = judged.costs[i]
        return (*(f"{value:.4f}" for value in shown), "" if np.isnan(costs).any() else f"{_dual(*costs):.4f}")

    def _report_problem(self, problem: str) -> None:
        self.n_problems += 1
        if self.n_problems <= SHOWN_PROBLEMS:
            self.log(f"{problem}; left out")

    def report_problems(self) -> None:
        """Say how many lines could not be read, if not all were named."""
        if self.n_problems > SHOWN_PROBLEMS:
            self.log(f"{self.n_problems - SHOWN_PROBLEMS:,} further lines could not be read and were left out")


def _dual(forward: float, backward: float) -> float:
    return abs(forward - backward) + (forward + backward) / 2
