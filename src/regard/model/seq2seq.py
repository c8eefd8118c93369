"""The model interface: features, start, step, top_k."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.batch import Batch, Source
from regard.model.layers import Output
from regard.padding import BOS, EOS, PAD, UNK

# Measured on two cores: below this size the search in blocks costs more calls than it saves comparisons.
BLOCKS_FROM = 200_000
BLOCK = 64
assert {PAD, UNK, BOS} == set(range(EOS)), "the tokens that are never said must be those before EOS"


@dataclass(frozen=True, eq=False)
class Choices:
    """For each hypothesis the likeliest tokens that may follow, likeliest first; −∞ where there are not so many."""

    gains: Float[Tensor, "R k"]  # log-probabilities
    tokens: Int[Tensor, "R k"]


def likeliest(logits: Float[Tensor, "R V"], must: Int[Tensor, " R"] | None, k: int) -> Choices:
    """Gives the k likeliest tokens that may follow, or all where there are fewer."""
    return Choices(*top(log_probs(logits, must), k))


def log_probs(logits: Float[Tensor, "R V"], must: Int[Tensor, " R"] | None) -> Float[Tensor, "R V"]:
    """Gives the model's own log-probability of each token that may follow, and −∞ for all others.

    PAD, UNK and BOS may never follow; where `must` names a token other than PAD, nothing else may.
    """
    said = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    if must is None:
        said[:, :EOS] = -torch.inf
        return said
    forced = said.gather(1, must[:, None])
    said[:, :EOS] = -torch.inf
    said.masked_fill_((must != PAD)[:, None], -torch.inf)
    return said.scatter_(1, must[:, None], forced.masked_fill((must == PAD)[:, None], -torch.inf))


def top(x: Float[Tensor, "R V"], k: int) -> tuple[Float[Tensor, "R k"], Int[Tensor, "R k"]]:
    """Gives the k largest of each row and where they stand, largest first.

    `torch.topk` on a CPU compares one number at a time. The k largest lie in the k blocks with the largest maxima, and
    maxima of blocks are found by vector instructions: half the time for hundreds of rows.
    """
    R, V = x.shape
    n_blocks = V // BLOCK
    if R * V < BLOCKS_FROM or n_blocks < 2 * k or x.device.type != "cpu":
        return x.topk(min(k, V))
    blocks = x[:, : n_blocks * BLOCK].unflatten(1, (n_blocks, BLOCK))
    chosen = blocks.amax(-1).topk(k, sorted=False).indices  # (R, k)
    near = blocks.gather(1, chosen[..., None].expand(-1, -1, BLOCK)).flatten(1)
    largest, at = torch.cat([near, x[:, n_blocks * BLOCK :]], dim=1).topk(k)
    in_block = chosen.gather(1, (at // BLOCK).clamp(max=k - 1)) * BLOCK + at % BLOCK
    in_rest = at - k * BLOCK + n_blocks * BLOCK  # what is left of the row after the last whole block
    return largest, torch.where(at < k * BLOCK, in_block, in_rest)


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
