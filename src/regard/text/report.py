"""What was found in a text before training with it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.text.ledger import Ledger, Verdict

N_EXAMPLES = 3
WORDS = {
    Verdict.EMPTY: "with an empty side",
    Verdict.OVERLONG: "with an overlong side",
    Verdict.DUPLICATE: "that occurred before",
    Verdict.OUTLIER: "with sides of very different lengths",
    Verdict.IN_VALID: "that share a sentence with validation",
    Verdict.IN_TEST: "that share a sentence with test",
    Verdict.EXCLUDED: "that share a sentence with data.exclude",
}


# In the words of documents, which have one side.
OF_DOCUMENTS = {
    Verdict.EMPTY: "that are empty",
    Verdict.OVERLONG: "that are overlong",
    Verdict.IN_VALID: "that stand in validation",
    Verdict.IN_TEST: "that stand in test",
}


@dataclass(frozen=True)
class Finding:
    """Pairs that were left out for one reason, and where the first of them stand."""

    what: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """One of several sources of training text: its pairs, and how often an epoch sees each."""

    source: str
    train: int
    weight: float


@dataclass(frozen=True)
class DataReport:
    """The sizes of the splits and what was left out: `read` is the sum of training, split-off and left-out pairs."""

    read: int
    train: int
    valid: int
    test: int
    valid_is_split: bool  # off the training text
    left_out: tuple[Finding, ...]
    held_empty: int  # pairs of given validation and test text, left out for an empty side
    origins: tuple[Origin, ...] = ()  # where there are several
    unit: str = "pairs"  # or documents, or characters of a running text

    def left(self, verdict: Verdict) -> Finding:
        """Gives the finding of one kind."""
        return next(finding for finding in self.left_out if finding.what == verdict.name.lower())

    def lines(self) -> list[str]:
        """Says it in a few lines; kinds that do not occur are not mentioned."""
        split = " (split off)" if self.valid_is_split else ""
        said = [
            f"{self.read:,} {self.unit} read: {self.train:,} for training, {self.valid:,} for validation{split}, "
            f"{self.test:,} for test"
        ]
        for origin in self.origins:
            said.append(_told(origin))
        for verdict, words in (WORDS if self.unit == "pairs" else WORDS | OF_DOCUMENTS).items():
            finding = self.left(verdict)
            if finding.count:
                said.append(f"{finding.count:,} left out {words} ({'; '.join(finding.examples)})")
        if self.held_empty:
            said.append(f"{self.held_empty:,} left out of validation and test with an empty side")
        return said


def _told(origin: Origin) -> str:
    if not origin.train:
        return f"NOTHING for training from {origin.source}: all of it was left out, for reasons that are told below"
    often = "" if origin.weight == 1 else f", each seen {origin.weight:g} times an epoch"
    return f"{origin.train:,} for training from {origin.source}{often}"


def find(ledger: Ledger, examples: Mapping[Verdict, Sequence[str]]) -> tuple[Finding, ...]:
    """Counts what was left out, kind by kind."""
    return tuple(
        Finding(verdict.name.lower(), ledger.count(verdict), tuple(examples.get(verdict, ()))) for verdict in WORDS
    )


def find_origins(ledger: Ledger, sources: Sequence[str], weights: Sequence[float]) -> tuple[Origin, ...]:
    """Counts the training pairs of each source, where there are several."""
    counts = np.bincount(ledger.origins[ledger.places(Verdict.TRAIN)], minlength=len(sources)).tolist()
    each = zip(sources, counts, weights, strict=True)
    return tuple(Origin(*origin) for origin in each) if len(sources) > 1 else ()


def write_report(report: DataReport, path: Path) -> None:
    """Writes a report as JSON."""
    path.write_text(json.dumps(asdict(report), ensure_ascii=False, indent=1), encoding="utf-8")


def read_report(path: Path) -> DataReport:
    """Reads what `write_report` wrote."""
    try:
        given: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        left_out = (Finding(**finding | {"examples": tuple(finding["examples"])}) for finding in given.pop("left_out"))
        origins = tuple(Origin(**origin) for origin in given.pop("origins"))
        return DataReport(left_out=tuple(left_out), origins=origins, **given)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: a report must be whole, got {error!r}; delete its folder to make it anew") from error
