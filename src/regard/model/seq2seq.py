"""The model interface: features, start, step, top_k."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from regard.batch import Batch, Source
from regard.model.layers import Output
from regard.padding import BOS, EOS, PAD, UNK
from regard.shapes import Float, Int

# Measured on two cores: below this size the search in blocks costs more calls than it saves comparisons.
BLOCKS_FROM = 200_000
BLOCK = 64
assert {PAD, UNK, BOS} == set(range(EOS)), "the tokens that are never written must be those before EOS"


def log_probs(logits: Float[Tensor, "*B V"]) -> Float[Tensor, "*B V"]:
    """Return the log-probability of each token, in float32 at least."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def label_log_probs(logits: Float[Tensor, "*B V"], labels: Int[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Return the log-probability of each given token: what losses, perplexities and scores of targets are made of."""
    return log_probs(logits).gather(-1, labels[..., None])[..., 0]


def allowed_log_probs(logits: Float[Tensor, "R V"], forced: Int[Tensor, " R"] | None) -> Float[Tensor, "R V"]:
    """Return the model's own log-probability of each token that may follow, and −∞ for all others.

    PAD, UNK and BOS may never follow; where `forced` names a token other than PAD, nothing else may.
    """
    allowed = log_probs(logits)
    if forced is None:
        allowed[:, :EOS] = -torch.inf
        return allowed
    own = allowed.gather(1, forced[:, None])
    allowed[:, :EOS] = -torch.inf
    allowed.masked_fill_((forced != PAD)[:, None], -torch.inf)
    return allowed.scatter_(1, forced[:, None], own.masked_fill((forced == PAD)[:, None], -torch.inf))


def top_k(x: Float[Tensor, "R V"], k: int) -> tuple[Float[Tensor, "R k"], Int[Tensor, "R k"]]:
    """Return the k largest of each row and their indices, largest first; all where there are fewer.

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


def hypothesis_rows(sentences: Int[Tensor, " M"], n_hypotheses: int) -> Int[Tensor, " R"]:
    """Return the rows of all hypotheses of some sentences."""
    return (sentences[:, None] * n_hypotheses + torch.arange(n_hypotheses, device=sentences.device)).flatten()


class State(ABC):
    """The cache of a decoder for some hypotheses, the same number for each sentence; a step returns a new one."""

    @abstractmethod
    def reorder(self, rows: Int[Tensor, " R"]) -> "State":
        """Return the state in which row r continues the hypothesis of row `rows[r]`, of the same sentence."""

    @abstractmethod
    def keep(self, sentences: Int[Tensor, " M"]) -> "State":
        """Return the state of some sentences only."""


class Seq2Seq(nn.Module, ABC):
    """A sequence-to-sequence model."""

    output: Output
    limit: int | None = None  # tokens that a target may have, where positions end

    @abstractmethod
    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """Return the vectors whose logits are those of every next target token (teacher forcing)."""

    def forward(self, batch: Batch) -> Float[Tensor, "B T V"]:
        """Return the logits of every next target token (teacher forcing)."""
        return self.output(self.features(batch))

    @abstractmethod
    def start(self, src: Source, n_hypotheses: int) -> State:
        """Encode the sources, and return the state from which each sentence's hypotheses start."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        """Read one token for each hypothesis, and return the logits of the next."""
