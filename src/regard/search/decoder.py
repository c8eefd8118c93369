"""What a search asks of a model, step by step: NumPy in, NumPy out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from regard.padding import EOS, PAD, Ids
from regard.shapes import Array, Float, Int, np


@dataclass(frozen=True, eq=False)
class TopK:
    """For each hypothesis the k most probable tokens that may follow, best first; −∞ where there are fewer."""

    log_probs: Float[Array, "R k"]
    tokens: Int[Array, "R k"]


class DecoderState(ABC):
    """What a decoder remembers of some hypotheses, N for each sentence; handed in and handed back."""

    @abstractmethod
    def reorder(self, rows: Int[Array, " R"]) -> "DecoderState":
        """Let each hypothesis continue another of the same sentence."""

    @abstractmethod
    def keep(self, sentences: Int[Array, " M"]) -> "DecoderState":
        """Go on with some sentences only."""


class IncrementalDecoder(ABC):
    """A model that reads one token for each hypothesis and scores the next.

    PAD, UNK and BOS may never follow; where `forced` names a token other than PAD, nothing else may.
    """

    limit: int | None  # tokens that a target may have, where positions end

    @abstractmethod
    def start(self, sources: Sequence[Ids], n_hypotheses: int) -> DecoderState:
        """Encode the sources, and return the state from which each sentence's hypotheses begin."""

    @abstractmethod
    def top_k(
        self, tokens: Int[Array, " R"], state: DecoderState, forced: Int[Array, " R"] | None, k: int
    ) -> tuple[TopK, DecoderState]:
        """Read one token for each hypothesis, and return the k most probable next ones, or all if there are fewer."""

    @abstractmethod
    def log_probs(
        self, tokens: Int[Array, " R"], state: DecoderState, forced: Int[Array, " R"] | None
    ) -> tuple[Float[Array, "R V"], DecoderState]:
        """Read one token for each hypothesis, and return the log-probability of every next one."""


def allowed_log_probs(logits: Float[Array, "R V"], forced: Int[Array, " R"] | None) -> Float[Array, "R V"]:
    """Return the log-probability of each token that may follow, and −∞ for all others: the rule that decoders keep."""
    shifted = logits.astype(np.float64) - logits.max(1, keepdims=True)
    log_probs = (shifted - np.log(np.exp(shifted).sum(1, keepdims=True))).astype(np.float32)
    allowed = np.full_like(log_probs, -np.inf)
    free = np.ones(len(logits), bool) if forced is None else forced == PAD
    allowed[free, EOS:] = log_probs[free, EOS:]
    if forced is not None:
        rows = np.flatnonzero(~free)
        allowed[rows, forced[rows]] = log_probs[rows, forced[rows]]
    return allowed
