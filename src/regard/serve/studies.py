"""What the page is told about studies that exchange one part at a time: the shapes of its JSON."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Judged:
    """One validation of a run."""

    step: int
    loss: float
    bleu: float


@dataclass(frozen=True)
class StudyRun:
    """One variant with one seed; one that failed says why, and brought nothing else."""

    variant: str
    part: str  # that was exchanged
    changes: list[str]
    seed: int
    error: str | None
    parameters: int | None
    tokens_per_second: float | None
    seconds: float | None
    perplexity: float | None  # of the validation text
    bleu: float | None
    curve: list[Judged]


@dataclass(frozen=True)
class Study:
    """All runs so far; variants stand in the order of the study, its baseline first."""

    name: str
    measured_on: str  # test or validation: what BLEU is of
    runs: list[StudyRun]
    clear: list[str]  # variants whose BLEU differs from the baseline's by more than chance (Welch's t-test at 5 %)


@dataclass(frozen=True)
class Studies:
    """The studies that this server was told of."""

    studies: list[Study]
