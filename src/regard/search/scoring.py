"""Log-probabilities of given targets: losses, perplexity."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.batch import Batch, make_batch
from regard.model import Seq2Seq
from regard.model.seq2seq import label_log_probs
from regard.padding import EOS, Ids, length_sorted
from regard.shapes import Float


@dataclass(frozen=True)
class Likelihood:
    """The mean −log p of a token in nats, and the number of tokens."""

    loss: float
    n_tokens: int

    @property
    def perplexity(self) -> float:
        """e to the loss: the number of equally probable tokens that would be as hard to predict."""
        return exp(min(self.loss, 700.0))


def text_likelihood(model: Seq2Seq, ids: Ids, width: int, batch_tokens: int) -> Likelihood:
    """Score a running text, read in windows of `width` tokens.

    A window begins with the last token of the one before, which is not counted again: every token counts once, and is
    predicted from 1 … width − 1 tokens before it; the very first from none.
    """
    text = np.asarray(ids, dtype=np.int64)
    if width < 2 or len(text) < 1:
        raise ValueError(f"a window must have 2 tokens or more and a text 1, got {width} and {len(text)}")
    total = 0.0
    for windows, first in _windows(text, width, max(1, batch_tokens // width)):
        log_probs = row_log_probs(model, windows)
        total -= float(log_probs[:, 1:].sum(dtype=torch.float64)) + (float(log_probs[0, 0]) if first else 0.0)
    return Likelihood(total / len(text), len(text))


def document_likelihood(model: Seq2Seq, documents: Sequence[Ids], batch_tokens: int) -> Likelihood:
    """Score documents, each by itself, its end counted as a token."""
    if not documents:
        raise ValueError("there must be 1 document or more, got 0")
    total, n = 0.0, 0
    for same in _of_one_length(documents, batch_tokens):
        closed = np.concatenate([same, np.full((len(same), 1), EOS)], axis=1)
        total -= float(row_log_probs(model, closed).sum(dtype=torch.float64))
        n += closed.size
    return Likelihood(total / n, n)


@torch.no_grad()
def row_log_probs(model: Seq2Seq, rows: NDArray[np.int64]) -> Float[Tensor, "B T"]:
    """Return the log-probability of each token of some texts of one length, after BOS and those before it."""
    device = next(model.parameters()).device
    logits = model(make_batch([[]] * len(rows), rows[:, :-1].tolist()).to(device))
    return label_log_probs(logits, torch.from_numpy(rows).to(device))


def _windows(text: NDArray[np.int64], width: int, n: int) -> Iterator[tuple[NDArray[np.int64], bool]]:
    """Yield the windows of a text, at most n of one length at a time, and whether the text begins with them."""
    starts = np.arange(0, max(1, len(text) - 1), width - 1)
    whole = starts[starts + width <= len(text)]
    for at in range(0, len(whole), n):
        yield text[whole[at : at + n, None] + np.arange(width)], at == 0
    for start in starts[len(whole) :].tolist():
        yield text[None, start:], start == 0


def _of_one_length(documents: Sequence[Ids], batch_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Group documents of the same length, so that none is padded."""
    lengths = np.array([len(document) for document in documents])
    for length in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == length).tolist()
        n = max(1, batch_tokens // (length + 1))
        for at in range(0, len(places), n):
            some = [np.asarray(documents[i], dtype=np.int64) for i in places[at : at + n]]
            yield np.stack(some)


BATCH_TOKENS = 2048  # of the longer side, with its padding: a table of logits has so many rows


def pair_batches(src: Sequence[Ids], tgt: Sequence[Ids]) -> Iterator[tuple[list[int], Batch]]:
    """Yield batches of pairs of like lengths, longest first, each with the indices of its pairs.

    What shares a batch does not depend on the order in which pairs come.
    """
    order = sorted(range(len(src)), key=lambda i: (list(src[i]), list(tgt[i])))
    for some in length_sorted([max(len(src[i]), len(tgt[i])) + 1 for i in order], BATCH_TOKENS):
        indices = [order[each] for each in some]
        yield indices, make_batch([src[i] for i in indices], [tgt[i] for i in indices])


@torch.no_grad()
def token_costs(model: Seq2Seq, batch: Batch) -> Float[Tensor, "B T"]:
    """Return −log p of each label, EOS included; padding costs nothing and is never scored."""
    batch = batch.to(next(model.parameters()).device)
    real, labels = batch.tgt.token_mask, batch.tgt.labels
    costs = -label_log_probs(model.output(model.features(batch)[real]), labels[real])
    return torch.zeros(real.shape, dtype=costs.dtype, device=costs.device).masked_scatter(real, costs).cpu()
