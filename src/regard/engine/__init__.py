"""The searches of `search/` as fast as the device allows: one engine a model, chosen once."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from regard.config import DecodeSettings, choose
from regard.padding import Ids, length_sorted
from regard.search import CHECK, SEARCH
from regard.search.constrained import Constraint, check_constrained, constrained_search
from regard.search.constraint import ConstraintAutomaton
from regard.search.decoder import IncrementalDecoder
from regard.search.hypothesis import Hypothesis
from regard.shapes import Array, Int

if TYPE_CHECKING:
    from regard.model import Seq2Seq

# From the sources of a batch to the target tokens that may be written, EOS among them.
Vocabulary = Callable[[Sequence[Ids]], Int[Array, " W"]]
SELF_CONTAINED = {"greedy", "beam"}  # searches that an engine may run without asking Python at each step


class Engine(ABC):
    """A model, in evaluation mode, that searches; what it finds is what the plain searches find, up to rounding."""

    @property
    @abstractmethod
    def model(self) -> "Seq2Seq":
        """The plain PyTorch modules that this engine decodes as, for traces."""

    @property
    @abstractmethod
    def decoder(self) -> IncrementalDecoder:
        """The model one step at a time, for sampling, forced prefixes, constraints and traces."""

    def search(
        self,
        sources: Sequence[Ids],
        settings: DecodeSettings,
        prefixes: Sequence[Ids] | None = None,
        vocabulary: Vocabulary | None = None,
        constraints: Sequence[Sequence[Constraint] | None] | None = None,
        rewritten: Sequence[Ids] | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Search all sources in batches of like lengths; yield each one's hypotheses, best first, with its index.

        All are searched as if they had no constraints, so what a model says by itself costs nothing. Those whose
        hypotheses do not all meet theirs are searched again, step by step and over all tokens; and, where there is one,
        in another form: with what is wanted in its place, which models may copy. What that says counts where the other
        search only added what is wanted, and said what stood in its place as well.
        """
        choose(SEARCH, settings.method, "method")
        if constraints is not None:
            prefixes, rewritten = prefixes or [[]] * len(sources), rewritten or sources
            yield from self._search_constrained(sources, settings, prefixes, vocabulary, constraints, rewritten)
            return
        prefixes = prefixes if prefixes is not None and any(len(prefix) for prefix in prefixes) else None
        for batch in length_sorted([len(source) + 1 for source in sources], settings.batch_tokens):
            some = [sources[i] for i in batch]
            prefix = None if prefixes is None else [prefixes[i] for i in batch]
            yield from zip(batch, self.search_batch(some, settings, prefix, vocabulary), strict=True)

    def _search_constrained(
        self,
        sources: Sequence[Ids],
        settings: DecodeSettings,
        prefixes: Sequence[Ids],
        vocabulary: Vocabulary | None,
        constraints: Sequence[Sequence[Constraint] | None],
        rewritten: Sequence[Ids],
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        if len(constraints) != len(sources):
            raise ValueError(
                f"each source must have its constraints or None, got {len(constraints)} for {len(sources)}"
            )
        if any(constraints):
            check_constrained(settings)
        free: dict[int, list[Hypothesis]] = {}  # those that do not meet their constraints
        for i, hypotheses in self.search(sources, settings, prefixes, vocabulary):
            if _meet(hypotheses, constraints[i]):
                yield i, hypotheses
            else:
                free[i] = hypotheses
        again = [i for i in free if list(rewritten[i]) != list(sources[i])]
        found = self.search([rewritten[i] for i in again], settings, [prefixes[i] for i in again])
        other = {again[n]: hypotheses for n, hypotheses in found if _meet(hypotheses, constraints[again[n]])}
        unmet = list(free)
        for batch in length_sorted([len(sources[i]) + 1 for i in unmet], settings.batch_tokens):
            own = [unmet[n] for n in batch]
            bound = ([sources[i] for i in own], [constraints[i] or () for i in own], [prefixes[i] for i in own])
            for i, hypotheses in zip(
                own, constrained_search(self.decoder, bound[0], settings, *bound[1:]), strict=True
            ):
                added = i in other and _only_added(free[i][0], other[i][0], hypotheses[0])
                yield i, other[i] if added else hypotheses

    def search_batch(
        self,
        sources: Sequence[Ids],
        settings: DecodeSettings,
        prefix: Sequence[Ids] | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> list[list[Hypothesis]]:
        """Search some sources together."""
        if vocabulary is not None:
            raise ValueError(
                "a shortlist is for greedy and beam search without prefix and trace, in compiled code on a CPU: leave "
                "it out"
            )
        return SEARCH[settings.method](self.decoder, sources, settings, prefix)

    def scheduler(self) -> "Scheduler":
        """Return a queue of sentences that are searched as they come; one thread uses it."""
        return BatchScheduler(self)


def _meet(hypotheses: Sequence[Hypothesis], constraints: Sequence[Constraint] | None) -> bool:
    automaton = ConstraintAutomaton(constraints) if constraints else None
    return automaton is None or all(automaton.is_met(each.ids) for each in hypotheses)


def _only_added(free: Hypothesis, other: Hypothesis, bound: Hypothesis) -> bool:
    """Tell whether a target that meets constraints still holds all that another left out to meet them."""
    return Counter(free.ids) - Counter(other.ids) <= Counter(bound.ids)


class Scheduler(ABC):
    """Sentences that come and go while others are searched. It is used by one thread."""

    @abstractmethod
    def add(self, ids: Ids, settings: DecodeSettings) -> int:
        """Queue a sentence, and return the number by which it is known; raise ValueError for settings it refuses."""

    @abstractmethod
    def cancel(self, number: int) -> None:
        """Drop a sentence that is not done."""

    @abstractmethod
    def step(self) -> list[tuple[int, list[Hypothesis] | Exception]]:
        """Work for a moment, and return the sentences that are done, or what went wrong with them."""

    @abstractmethod
    def wants_more(self) -> bool:
        """Tell whether a sentence that is added now would be searched beside those that are there."""

    @property
    @abstractmethod
    def n_running(self) -> int:
        """Count the sentences that are being searched together."""

    @abstractmethod
    def __len__(self) -> int:
        """Count the sentences that are not done."""


class BatchScheduler(Scheduler):
    """Takes the oldest sentence and those with the same settings, as many as fill a batch, and searches them.

    A sentence may have constraints, which other schedulers know nothing of.
    """

    def __init__(self, engine: Engine):
        self.engine = engine
        # Oldest first; with constraints, and the source in another form.
        self._waiting: dict[int, tuple[Ids, DecodeSettings, Sequence[Constraint], Ids]] = {}
        self._n_added = 0

    def add(
        self, ids: Ids, settings: DecodeSettings, constraints: Sequence[Constraint] = (), rewritten: Ids = ()
    ) -> int:
        choose(CHECK, settings.method, "method")(settings)
        self._waiting[self._n_added] = (ids, settings, constraints, rewritten)
        self._n_added += 1
        return self._n_added - 1

    def cancel(self, number: int) -> None:
        del self._waiting[number]

    def step(self) -> list[tuple[int, list[Hypothesis] | Exception]]:
        if not self._waiting:
            return []
        first, (source, settings, constraints, rewritten) = next(iter(self._waiting.items()))
        if constraints:  # alone, so that what cannot be met is nobody else's error
            del self._waiting[first]
            return [(first, self._search_alone(source, settings, constraints, rewritten))]
        alike = [number for number, (_, other, some, _) in self._waiting.items() if other == settings and not some]
        lengths = [len(self._waiting[number][0]) + 1 for number in alike]
        batch = next(some for some in length_sorted(lengths, settings.batch_tokens) if 0 in some)
        numbers = [alike[i] for i in batch]
        sources = [self._waiting.pop(number)[0] for number in numbers]
        try:
            return list(zip(numbers, self.engine.search_batch(sources, settings), strict=True))
        except Exception as error:
            return [(number, error) for number in numbers]

    def _search_alone(
        self, source: Ids, settings: DecodeSettings, constraints: Sequence[Constraint], rewritten: Ids
    ) -> list[Hypothesis] | Exception:
        other = [rewritten] if len(rewritten) else None
        try:
            return next(self.engine.search([source], settings, constraints=[constraints], rewritten=other))[1]
        except Exception as error:
            return error

    def wants_more(self) -> bool:
        return not self._waiting

    @property
    def n_running(self) -> int:
        return 0  # a batch is done within one step

    def __len__(self) -> int:
        return len(self._waiting)


def select_engine(model: "Seq2Seq", precision: str = "float32") -> Engine:
    """Return the fastest engine that decodes as a PyTorch model does, on the device where the model is.

    Transformers with scaled dot products and positions that are added to the tokens or rotate queries and keys are
    packed: on a CPU for compiled code, on a GPU, where positions are added, for steps of fixed shape. In int8 the
    linear maps of every other model are 8-bit ones.
    """
    from regard.engine import cuda, pack, plain  # PyTorch begins here

    return pack.pack_for_cpu(model, precision) or cuda.cuda_engine(model) or plain.plain_engine(model, precision)
