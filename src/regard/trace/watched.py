"""A model whose every answer to a search is written down."""

from dataclasses import dataclass, field

from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Batch, Source
from regard.model import Seq2Seq, State
from regard.model.choices import Choices


@dataclass(eq=False)
class Search:
    """What one search was told: at each step the likeliest continuations of each hypothesis, sentence by sentence."""

    left: list[int]  # the sentences that are still being written
    answers: list[list[Choices]] = field(default_factory=list)  # of each sentence, N hypotheses a step

    def hear(self, said: Choices) -> None:
        """Writes an answer down."""
        n = len(said.gains) // len(self.left)
        for sentence, gains, tokens in zip(self.left, said.gains.split(n), said.tokens.split(n), strict=True):
            self.answers[sentence].append(Choices(gains.cpu(), tokens.cpu()))


class WatchedState(State):
    """Another state, with what happens to it written down."""

    def __init__(self, state: State, search: Search):
        self.state = state
        self.search = search

    def reorder(self, rows: Int[Tensor, " R"]) -> "WatchedState":
        return WatchedState(self.state.reorder(rows), self.search)

    def keep(self, sentences: Int[Tensor, " M"]) -> "WatchedState":
        self.search.left = [self.search.left[i] for i in sentences.tolist()]
        return WatchedState(self.state.keep(sentences), self.search)


class Watched(Seq2Seq):
    """Another model, asked just what the search asks: the search finds what it finds without a watcher."""

    def __init__(self, model: Seq2Seq):
        super().__init__()
        self.model = model
        self.limit = model.limit
        self.searches: list[Search] = []

    def plain(self) -> Seq2Seq:
        return self.model.plain()

    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        return self.model.features(batch)

    def start(self, src: Source, n_hypotheses: int) -> WatchedState:
        B = len(src.lengths)
        self.searches.append(Search(list(range(B)), [[] for _ in range(B)]))
        return WatchedState(self.model.start(src, n_hypotheses), self.searches[-1])

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], WatchedState]:
        assert isinstance(state, WatchedState), f"a watched model continues its own states, got {type(state)}"
        logits, after = self.model.step(tokens, state.state)
        return logits, WatchedState(after, state.search)

    def choices(
        self, tokens: Int[Tensor, " R"], state: State, must: Int[Tensor, " R"] | None, k: int
    ) -> tuple[Choices, WatchedState]:
        assert isinstance(state, WatchedState), f"a watched model continues its own states, got {type(state)}"
        said, after = self.model.choices(tokens, state.state, must, k)
        state.search.hear(said)
        return said, WatchedState(after, state.search)
