"""What was dropped and why: counts, samples, and the table of a command."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table

from regard.clean.rules import CODES, REASONS
from regard.terminal import QUIET, shorten

SAMPLES = 5  # of each reason
SHOWN = 36  # columns of each side of a sample in the table
NAMES = {code: reason for reason, code in CODES.items()}


@dataclass(frozen=True)
class DroppedPair:
    """A pair, where it stands, and the probability that it is noise."""

    where: str
    src: str
    tgt: str
    noise: float


@dataclass
class CleanReport:
    """Counts of a run, and a uniform sample of the pairs that were dropped for each reason."""

    languages: tuple[str | None, str | None] = (None, None)
    noise_shares: Mapping[str, float] = field(default_factory=dict)  # of what the rules keep, as estimated
    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    samples: dict[str, list[DroppedPair]] = field(default_factory=lambda: {reason: [] for reason in REASONS})

    def add(self, code: int, pair: DroppedPair, rng: random.Random) -> None:
        """Count a pair that is dropped, and keep it with such a chance that each is as likely to stay (algorithm R)."""
        reason = NAMES[code]
        self.dropped[reason] += 1
        kept = self.samples[reason]
        if len(kept) < SAMPLES:
            kept.append(pair)
        elif (place := rng.randrange(self.dropped[reason])) < SAMPLES:
            kept[place] = pair

    def to_json(self) -> dict[str, Any]:
        """Return the report without reasons for which nothing was dropped."""
        table = asdict(self)
        for name in ("dropped", "samples"):
            table[name] = {reason: value for reason, value in table[name].items() if value}
        return table

    def table(self) -> Table:
        """List the reasons, how many pairs each has dropped, and one of them."""
        src, tgt = (language or "unchecked" for language in self.languages)
        table = Table(title=f"{self.read:,} pairs read ({src}–{tgt}), {self.kept:,} kept", **QUIET)
        for column in ("dropped as", "pairs", "share", "such as"):
            table.add_column(column, justify="right" if column in ("pairs", "share") else "left")
        for reason, n in self.dropped.items():
            if n:
                table.add_row(reason, f"{n:,}", f"{n / self.read:.2%}", _shown(self.samples[reason]))
        return table


def _shown(samples: Sequence[DroppedPair]) -> str:
    first = samples[0]
    texts = [shorten(text, SHOWN) for text in (first.src, first.tgt)]
    return " ‖ ".join(texts) if any(texts) else first.where
