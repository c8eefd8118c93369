"""Beam search with lexical constraints, by dynamic beam allocation (Post and Vilar 2018)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from regard.config import DecodeSettings
from regard.padding import BOS, EOS, Ids
from regard.search.beam import check_beam
from regard.search.constraint import Constraint, ConstraintAutomaton, ConstraintState, Phrase
from regard.search.decoder import IncrementalDecoder
from regard.search.hypothesis import Hypothesis, Prefix, make_hypothesis, make_prefix, max_lengths, normalised
from regard.shapes import Array, Float, Int, np

__all__ = ["Constraint", "Phrase", "check_constrained", "constrained_search"]

ROWS_PER_BANK = 4
MOST_ROWS = 48  # of one sentence
LONGER = 1.25  # a target than its source, in tokens, where nothing is said about its length


def constrained_search(
    decoder: IncrementalDecoder,
    sources: Sequence[Ids],
    settings: DecodeSettings,
    constraints: Sequence[Sequence[Constraint]],
    prefix: Sequence[Ids] | None = None,
) -> list[list[Hypothesis]]:
    """Search as `beam_search` does for hypotheses that meet the constraints of their sentence, none or some.

    Hypotheses are kept in banks, by how many forced constraints they meet and whether they are within another, and
    share the rows of their sentence evenly, so that what meets more constraints does not compete with what meets fewer.
    Every continuation that begins or goes on with a constraint is looked at besides the most probable ones; a
    hypothesis ends in the last bank alone. There are `beam` rows for each sentence, or more where it has many banks.
    Greedy search is that with a beam of 1. Hypotheses are ranked by their value; their scores remain the model's own.
    """
    check_constrained(settings)
    settings = replace(settings, beam=1) if settings.method == "greedy" else settings
    check_beam(settings)
    if len(constraints) != len(sources):
        raise ValueError(f"each source must have its constraints, got {len(constraints)} for {len(sources)} sources")
    automata = [ConstraintAutomaton(some) for some in constraints]
    limits = _limits(decoder, sources, settings, automata, make_prefix(prefix, len(sources), settings.forced_bos))
    parts = zip(automata, sources, limits.tolist(), strict=True)
    searches = [SentenceSearch(settings, each, len(source) + 1, limit) for each, source, limit in parts]
    for width in sorted({each.width for each in searches}):
        some = [i for i, each in enumerate(searches) if each.width == width]
        own = None if prefix is None else [prefix[i] for i in some]
        forced = make_prefix(own, len(some), settings.forced_bos)
        _run(decoder, [sources[i] for i in some], [searches[i] for i in some], forced)
    return [each.result() for each in searches]


def check_constrained(settings: DecodeSettings) -> None:
    """Raise ValueError for a method that knows no constraints."""
    if settings.method == "sample":
        raise ValueError("constraints need beam or greedy search, got the method 'sample': use 'beam'")


def _limits(
    decoder: IncrementalDecoder,
    sources: Sequence[Ids],
    settings: DecodeSettings,
    automata: Sequence[ConstraintAutomaton],
    prefix: Prefix,
) -> Int[Array, " B"]:
    """Return the most tokens of each target: those of any search, or as many as its constraints may need."""
    needed = np.array([each.needed for each in automata], dtype=np.int64)
    enough = np.where(needed > 0, needed + prefix.lengths + 1, 0)
    limits = np.maximum(max_lengths(sources, settings, decoder.limit, prefix), enough)
    if decoder.limit is not None and (limits > decoder.limit).any():
        longest = f"{limits.max()} tokens, prefix and end included, where the model writes {decoder.limit}"
        raise ValueError(f"constraints must fit into what the model can write, got constraints of {longest}")
    return limits


def _run(
    decoder: IncrementalDecoder, sources: Sequence[Ids], searches: Sequence["SentenceSearch"], prefix: Prefix
) -> None:
    """Search sentences together that have equally many rows."""
    width, running, length = searches[0].width, list(range(len(searches))), 0
    state = decoder.start(sources, width)
    while running:
        tokens = np.array([searches[i].last_tokens() for i in running]).ravel()
        log_probs, state = decoder.log_probs(tokens, state, prefix.at(length, np.array(running), width))
        # More than `width` + 1 continuations of one hypothesis are never needed: it may end, and go on in `width` ways.
        best, length = top_tokens(log_probs, width + 1), length + 1
        for i, first in zip(running, range(0, len(best), width), strict=True):
            searches[i].step(best[first : first + width], log_probs[first : first + width])
        left = [n for n, i in enumerate(running) if not searches[i].is_final()]
        if left:
            state = state.reorder(np.array([searches[i].rows(n * width) for n, i in enumerate(running)]).ravel())
            state = state.keep(np.array(left)) if len(left) < len(running) else state
        running = [running[n] for n in left]


def top_tokens(log_probs: Float[Array, "R V"], k: int) -> list[list[int]]:
    """Return the k most probable tokens of each row, in any order."""
    R, V = log_probs.shape
    if k >= V:
        return [list(range(V))] * R
    return np.argpartition(log_probs, V - k, axis=1)[:, V - k :].tolist()


class Continuation(NamedTuple):
    """A hypothesis, as the continuation of another by one token."""

    before: "Continuation | None"
    row: int  # of the one that it continues, among those of the sentence
    token: int
    log_prob: float
    total: float  # log-probability of the whole
    length: int
    progress: ConstraintState
    price: float = 0.0  # log-probability of those tokens that brought forced constraints forward
    n_price: int = 0  # and their number
    within: float = 0.0  # a part of the price: of the tokens after the first, where it is within a constraint

    @property
    def rank(self) -> float:
        """Return by what it competes for a row of its bank.

        What is within a constraint is ranked as if all tokens of that after the first were free, as they will have to
        be paid wherever it begins: else those that have just begun would drive out those that have come further.
        """
        return self.total - self.within + (self.progress.ended_credit if self.token == EOS else self.progress.credit)

    def trace_back(self) -> tuple[list[int], list[float]]:
        """Return all tokens and their log-probabilities."""
        tokens, log_probs, at = [], [], self
        while at.before is not None:
            tokens.append(at.token)
            log_probs.append(at.log_prob)
            at = at.before
        return tokens[::-1], log_probs[::-1]


class SentenceSearch:
    """The search of one sentence: its hypotheses, those that are in progress and those that have ended."""

    def __init__(self, settings: DecodeSettings, automaton: ConstraintAutomaton, n_source: int, limit: int):
        self.settings = settings
        self.automaton = automaton
        self.n_source = n_source  # tokens of the source, EOS counted
        self.limit = limit
        self.width = max(settings.beam, min(MOST_ROWS, ROWS_PER_BANK * (automaton.n_banks - 1)))
        self.live = [Continuation(None, 0, BOS, 0.0, 0.0, 0, automaton.beginning)]
        self.ended: list[Continuation] = []

    def step(self, best: list[list[int]], log_probs: Float[Array, "N V"]) -> None:
        """Continue all hypotheses by one token: any of the best ones, or one of a constraint."""
        found: list[Continuation] = []
        for row, hypothesis in enumerate(self.live):
            tokens = [*best[row], *hypothesis.progress.next_tokens.difference(best[row])]
            if max(tokens) >= log_probs.shape[1]:
                raise ValueError(f"constraints must hold ids below {log_probs.shape[1]}, got {max(tokens)}")
            found += self._continuations(hypothesis, row, tokens, log_probs[row, tokens].tolist())
        found.sort(key=lambda each: -each.rank)
        complete = [each for each in found if each.progress.complete][: self.settings.beam]
        self.ended += [each for each in complete if each.token == EOS]
        going = [each for each in found if each.token != EOS]
        self.live = allocate(going, self.automaton.n_banks, self.width)

    def _continuations(
        self, old: Continuation, row: int, tokens: list[int], log_probs: list[float]
    ) -> Iterator[Continuation]:
        before, room = old.progress, self.limit - old.length - 1
        for token, log_prob in zip(tokens, log_probs, strict=True):
            if log_prob == -inf:
                continue
            after = before if token == EOS else self.automaton.advance(before, old.token, token)
            if after.needed > room:
                continue
            price, n_price, within = old.price, old.n_price, 0.0
            if after.needed < before.needed:
                price, n_price = price + log_prob, n_price + 1
                within = old.within + log_prob if before.is_within and after.is_within else 0.0
            whole = old.total + log_prob, old.length + 1
            yield Continuation(old, row, token, log_prob, *whole, after, price, n_price, within)

    def last_tokens(self) -> list[int]:
        """Return the token that each hypothesis ends with, and any for rows that hold none."""
        return [each.token for each in self.live] + [self.live[0].token] * (self.width - len(self.live))

    def rows(self, first: int) -> list[int]:
        """Return the rows that the hypotheses continue, counted from the first of the sentence."""
        return [first + each.row for each in self.live] + [first] * (self.width - len(self.live))

    def is_final(self) -> bool:
        """Tell whether nothing better is to be expected.

        Without forced constraints the rule is that of beam search, and hypotheses in progress may yet have all bonuses.
        With some, those that end first may have met them in haste: as many ends as the beam is wide are enough where
        none in progress promises more, which is to go on as it is, and to pay for constraints as little as any.
        """
        n_best, beam, penalty = self.settings.n_best, self.settings.beam, self.settings.length_penalty
        if not self.live or self.live[0].length >= self.limit:
            return True
        worst = sorted((self.value(each) for each in self.ended), reverse=True)[n_best - 1 : n_best]
        if self.automaton.forced:
            least = max((each.price for each in self.ended), default=0.0)
            promise = max(self._value(each, each.total - each.price + least) for each in self.live)
            return len(self.ended) >= beam and promise <= worst[0]
        length = self.limit if penalty > 0 else self.live[0].length + 1
        bound = max(each.total for each in self.live) + self.automaton.most_credit
        return len(self.ended) >= beam or (bool(worst) and normalised(bound, length, penalty) <= worst[0])

    def value(self, each: Continuation) -> float:
        """Return by what finished hypotheses are ranked: the score, bonuses included.

        With forced constraints a target counts as no longer than LONGER times the source and the tokens that they
        took: else what costs much would cost less in a long target, and one that rambles on be the best.
        """
        return self._value(each, each.total)

    def _value(self, each: Continuation, total: float) -> float:
        usual = int(LONGER * (self.n_source + each.n_price)) if self.automaton.forced else each.length
        return normalised(total + each.progress.ended_credit, min(each.length, usual), self.settings.length_penalty)

    def result(self) -> list[Hypothesis]:
        """Return the best hypotheses, those in progress behind all that have ended."""
        penalty = self.settings.length_penalty
        hypotheses = [*self.ended, *(each for each in self.live if each.progress.complete)]
        if not hypotheses:
            raise ValueError(f"constraints must be met by some target, got {list(self.automaton.constraints)}")
        best = sorted(hypotheses, key=lambda each: (each.token != EOS, -self.value(each)))[: self.settings.n_best]
        return [make_hypothesis(*each.trace_back(), penalty) for each in best]


def allocate(candidates: list[Continuation], n_banks: int, width: int) -> list[Continuation]:
    """Return as many of the candidates, which come best first, as there are rows, from each bank its share.

    What banks with few candidates leave over is for the best of the others; what does not divide is for the last banks.
    """
    share, more = divmod(width, n_banks)
    free = [share + (bank >= n_banks - more) for bank in range(n_banks)]
    chosen: list[Continuation] = []
    others: list[Continuation] = []
    for each in candidates:
        (chosen if free[each.progress.bank] > 0 else others).append(each)
        free[each.progress.bank] -= 1
    return sorted([*chosen, *others[: width - len(chosen)]], key=lambda each: -each.rank)
