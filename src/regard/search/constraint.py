"""Lexical constraints: tokens that a target must contain, or had better contain, and how far a hypothesis is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import fsum

from regard.padding import BOS, EOS, Ids

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Phrase:
    """Tokens that count unless one of `not_after` stands before them, or one of `not_before` follows.

    Such are those by which a word would begin earlier or go on.
    """

    tokens: Tokens
    not_after: frozenset[int] = frozenset()
    not_before: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if not self.tokens or min(self.tokens) <= EOS:
            given = "an empty one" if not self.tokens else f"id {min(self.tokens)}"
            raise ValueError(f"a variant must hold tokens of text, without PAD, UNK, BOS and EOS, got {given}")


@dataclass(frozen=True)
class Constraint:
    """Variants one of which a target contains: always, or where it has a bonus, if that pays.

    The bonus is added to the log-probability by which hypotheses are ranked. The constraints of a sentence are met by
    different tokens: the same one twice is met by two occurrences.
    """

    variants: tuple[Tokens | Phrase, ...]
    bonus: float | None = None

    def __post_init__(self) -> None:
        if not self.variants:
            raise ValueError("a constraint must have a variant, got none")
        if self.bonus is not None and not 0 <= self.bonus < float("inf"):
            raise ValueError(f"the bonus of a constraint must be a finite number of 0 or more, got {self.bonus}")
        assert self.phrases, "each variant is checked"

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """Return all variants as phrases."""
        return tuple(each if isinstance(each, Phrase) else Phrase(each) for each in self.variants)

    @property
    def shortest(self) -> int:
        """Count the tokens of its shortest variant."""
        return min(len(each.tokens) for each in self.phrases)

    @property
    def longest_need(self) -> int:
        """Count tokens that are enough for its shortest variant, and to part it from its neighbours."""
        return min(len(each.tokens) + bool(each.not_after or each.not_before) for each in self.phrases)


# How a hypothesis may be read: the constraints that it meets, as bits, the variant that it is within or −1, and how
# many tokens of that it has written: all of them where it depends on the next token whether the variant counts.
Reading = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class ConstraintState:
    """How far a hypothesis is, by every reading of its tokens that may yet be the best."""

    readings: frozenset[Reading]
    bank: int  # twice the forced constraints that it meets, and one where it is within another
    needed: int  # tokens without which it cannot meet the forced ones
    complete: bool  # all forced constraints are met, if it ends here
    credit: float  # bonuses of the preferred ones that it meets, and a part of one that it is within
    ended_credit: float  # and without that part
    next_tokens: frozenset[int]  # that begin or go on with a variant
    between: bool  # it is within no variant by any reading, so that all other tokens change nothing
    after: dict[tuple[int, int], "ConstraintState"] = field(default_factory=dict)  # by the last token and the next

    @property
    def is_within(self) -> bool:
        """Whether a variant of a forced constraint is begun and not finished."""
        return self.bank % 2 == 1


class ConstraintAutomaton:
    """All constraints of one sentence, read token by token.

    It guesses where variants begin and keeps every reading that is not worse than another, so that hypotheses meet
    constraints whose variants overlap just if they hold all of them side by side.
    """

    def __init__(self, constraints: Sequence[Constraint]):
        self.constraints = tuple(constraints)
        self.numbers = [number for number, each in enumerate(self.constraints) for _ in each.variants]
        self.variants = [phrase for each in self.constraints for phrase in each.phrases]
        self.shortest = [each.shortest for each in self.constraints]
        self._starts: dict[int, list[int]] = {}
        for number, variant in enumerate(self.variants):
            self._starts.setdefault(variant.tokens[0], []).append(number)
        self.forced = sum(1 << i for i, each in enumerate(self.constraints) if each.bonus is None)
        self.n_banks = 1 + 2 * self.forced.bit_count()
        self.most_credit = fsum(each.bonus or 0.0 for each in self.constraints)
        # Of equal constraints the first is met first.
        self._before = [
            sum(1 << i for i, other in enumerate(self.constraints[:number]) if other == each)
            for number, each in enumerate(self.constraints)
        ]
        self._known: dict[frozenset[Reading], ConstraintState] = {}

    @property
    def needed(self) -> int:
        """Count tokens that are enough for the forced constraints."""
        return sum(each.longest_need for each in self.constraints if each.bonus is None)

    def is_met(self, ids: Ids) -> bool:
        """Tell whether a target meets all constraints, the preferred ones included."""
        progress, last = self.beginning, BOS
        for token in ids:
            progress, last = self.advance(progress, last, int(token)), int(token)
        everything = (1 << len(self.constraints)) - 1
        return any(self._ended(each) == everything for each in progress.readings)

    @cached_property
    def beginning(self) -> ConstraintState:
        """Return the progress of a hypothesis without tokens."""
        return self._progress(frozenset({(0, -1, 0)}))

    def advance(self, progress: ConstraintState, last: int, token: int) -> ConstraintState:
        """Read the token after another."""
        if progress.between and token not in progress.next_tokens:
            return progress
        key = (last, token)
        if key not in progress.after:
            readings = {new for each in progress.readings for new in self._read(each, last, token)}
            progress.after[key] = self._progress(frozenset(_undominated(readings)))
        return progress.after[key]

    def _read(self, reading: Reading, last: int, token: int) -> Iterable[Reading]:
        met, number, n = reading
        if number >= 0 and n < len(self.variants[number].tokens):
            return [self._within(met, number, n + 1)] if self.variants[number].tokens[n] == token else []
        if number >= 0:
            if token in self.variants[number].not_before:
                return []
            met |= 1 << self.numbers[number]
        started = [self._within(met, new, 1) for new in self._starts.get(token, ()) if self._may_start(met, new, last)]
        return [(met, -1, 0), *started]

    def _within(self, met: int, number: int, n: int) -> Reading:
        variant = self.variants[number]
        if n == len(variant.tokens) and not variant.not_before:
            return met | 1 << self.numbers[number], -1, 0
        return met, number, n

    def _may_start(self, met: int, number: int, last: int) -> bool:
        constraint = self.numbers[number]
        before = self._before[constraint]
        fits = not met >> constraint & 1 and met & before == before
        return fits and last not in self.variants[number].not_after

    def _progress(self, readings: frozenset[Reading]) -> ConstraintState:
        if readings not in self._known:
            ended = [self._ended(each) for each in readings]
            complete = [met for met in ended if met & self.forced == self.forced]
            bank, credit = max(self._rank(each) for each in readings)
            self._known[readings] = ConstraintState(
                readings,
                bank,
                min(self._needed(each) for each in readings),
                bool(complete),
                credit,
                max((self._credit(met) for met in complete), default=0.0),
                frozenset(token for each in readings for token in self._next_tokens(each)),
                all(number < 0 for _, number, _ in readings),
            )
        return self._known[readings]

    def _ended(self, reading: Reading) -> int:
        met, number, n = reading
        written = number >= 0 and n == len(self.variants[number].tokens)
        return met | 1 << self.numbers[number] if written else met

    def _rank(self, reading: Reading) -> tuple[int, float]:
        met, (_, number, n) = self._ended(reading), reading
        bank, credit = 2 * (met & self.forced).bit_count(), self._credit(met)
        if number >= 0 and n < len(self.variants[number].tokens):
            bonus = self.constraints[self.numbers[number]].bonus
            bank += bonus is None
            credit += (bonus or 0.0) * n / len(self.variants[number].tokens)
        return bank, credit

    def _credit(self, met: int) -> float:
        return fsum(each.bonus or 0.0 for i, each in enumerate(self.constraints) if met >> i & 1)

    def _needed(self, reading: Reading) -> int:
        met, (_, number, n) = self._ended(reading), reading
        rest = self.forced & ~met
        needed = sum(n for i, n in enumerate(self.shortest) if rest >> i & 1)
        if number < 0 or not rest >> self.numbers[number] & 1:
            return needed
        return needed - self.shortest[self.numbers[number]] + len(self.variants[number].tokens) - n

    def _next_tokens(self, reading: Reading) -> Iterable[int]:
        met, number, n = reading
        if number >= 0 and n < len(self.variants[number].tokens):
            return (self.variants[number].tokens[n],)
        return (each.tokens[0] for i, each in zip(self.numbers, self.variants, strict=True) if not met >> i & 1)


def _undominated(readings: Iterable[Reading]) -> Iterable[Reading]:
    """Leave out readings that meet a part of what another meets at the same place."""
    best: dict[tuple[int, int], list[int]] = {}
    for met, number, n in sorted(readings, key=lambda each: -each[0].bit_count()):
        others = best.setdefault((number, n), [])
        if not any(met & other == met for other in others):
            others.append(met)
            yield met, number, n
