"""The contract of sequence-to-sequence models: whole sentences for training, token by token for decoding."""

from abc import ABC, abstractmethod

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.batch import Batch, Source
from regard.model.choices import Choices, likeliest
from regard.model.embedding import Output


class State(ABC):
    """What a decoder remembers of some hypotheses, the same number for each sentence; handed in and handed back."""

    @abstractmethod
    def reorder(self, rows: Int[Tensor, " R"]) -> "State":
        """Lets hypotheses continue others of the same sentence."""

    @abstractmethod
    def keep(self, sentences: Int[Tensor, " M"]) -> "State":
        """Goes on with some sentences only."""


class Seq2Seq(nn.Module, ABC):
    """A model that reads one sentence and writes another."""

    output: Output
    limit: int | None = None  # tokens that a target may have, where positions end

    def plain(self) -> "Seq2Seq":
        """Gives the model of plain modules that this one decodes as: itself, unless it was packed for speed."""
        return self

    @abstractmethod
    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """Gives the vectors from which the next target tokens are read, the tokens before them given."""

    def forward(self, batch: Batch) -> Float[Tensor, "B T V"]:
        """Gives the logits of every next target token (teacher forcing)."""
        return self.output(self.features(batch))

    @abstractmethod
    def start(self, src: Source, n_hypotheses: int) -> State:
        """Reads the sources, and gives the state from which each sentence's hypotheses begin."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        """Reads one token for each hypothesis, and gives the logits of the next."""

    def choices(
        self, tokens: Int[Tensor, " R"], state: State, must: Int[Tensor, " R"] | None, k: int
    ) -> tuple[Choices, State]:
        """Reads one token for each hypothesis, and gives the k likeliest that may follow: all that most searches ask.

        What may follow, and what `must`, says `log_probs`. A model that finds them without a table of logits does.
        """
        logits, state = self.step(tokens, state)
        return likeliest(logits, must, k), state
