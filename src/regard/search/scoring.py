"""Log-probabilities of given targets: losses, perplexity."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from regard.batch import Batch, make_batch
from regard.model import Seq2Seq
from regard.padding import EOS, Ids, length_sorted


@dataclass(frozen=True)
class Foreseen:
    """The mean −log p of a piece in nats, and the number of pieces."""

    loss: float
    n_pieces: int

    @property
    def perplexity(self) -> float:
        """Gives e to the loss: as many pieces, all alike, would be as hard to foresee."""
        return exp(min(self.loss, 700.0))


def foresee_running(model: Seq2Seq, ids: Ids, width: int, batch_tokens: int) -> Foreseen:
    """Judges a model by a running text, read in windows of `width` pieces.

    A window begins with the last piece of the one before, which is not counted again: every piece counts once, and is
    foreseen from 1 … width − 1 pieces before it; the very first from none.
    """
    text = np.asarray(ids, dtype=np.int64)
    if width < 2 or len(text) < 1:
        raise ValueError(f"a window must have 2 pieces or more and a text 1, got {width} and {len(text)}")
    total = 0.0
    for windows, first in _windows(text, width, max(1, batch_tokens // width)):
        gains = log_probs(model, windows)
        total -= float(gains[:, 1:].sum(dtype=torch.float64)) + (float(gains[0, 0]) if first else 0.0)
    return Foreseen(total / len(text), len(text))


def foresee_documents(model: Seq2Seq, documents: Sequence[Ids], batch_tokens: int) -> Foreseen:
    """Judges a model by documents, each by itself, its end counted as a piece."""
    if not documents:
        raise ValueError("there must be 1 document or more, got 0")
    total, n = 0.0, 0
    for same in _of_one_length(documents, batch_tokens):
        closed = np.concatenate([same, np.full((len(same), 1), EOS)], axis=1)
        total -= float(log_probs(model, closed).sum(dtype=torch.float64))
        n += closed.size
    return Foreseen(total / n, n)


@torch.no_grad()
def log_probs(model: Seq2Seq, rows: NDArray[np.int64]) -> Float[Tensor, "B T"]:
    """Gives the log-probability of each piece of some texts of one length, after BOS and those before it."""
    device = next(model.parameters()).device
    logits = model(make_batch([[]] * len(rows), rows[:, :-1].tolist()).to(device))
    every = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    return every.gather(-1, torch.from_numpy(rows).to(device)[..., None])[..., 0]


def _windows(text: NDArray[np.int64], width: int, n: int) -> Iterator[tuple[NDArray[np.int64], bool]]:
    """Gives the windows of a text, at most n of one length at a time, and whether the text begins with them."""
    starts = np.arange(0, max(1, len(text) - 1), width - 1)
    whole = starts[starts + width <= len(text)]
    for at in range(0, len(whole), n):
        yield text[whole[at : at + n, None] + np.arange(width)], at == 0
    for start in starts[len(whole) :].tolist():
        yield text[None, start:], start == 0


def _of_one_length(documents: Sequence[Ids], batch_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Groups documents of the same length, so that none is padded."""
    lengths = np.array([len(document) for document in documents])
    for length in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == length).tolist()
        n = max(1, batch_tokens // (length + 1))
        for at in range(0, len(places), n):
            some = [np.asarray(documents[i], dtype=np.int64) for i in places[at : at + n]]
            yield np.stack(some)


BATCH_TOKENS = 2048  # of the longer side, with its padding: a table of logits has so many rows


def pair_batches(src: Sequence[Ids], tgt: Sequence[Ids]) -> Iterator[tuple[list[int], Batch]]:
    """Sets pairs of like lengths together, longest first; gives their places, and the batch.

    What is set together does not depend on the order in which pairs come.
    """
    order = sorted(range(len(src)), key=lambda place: (list(src[place]), list(tgt[place])))
    for some in length_sorted([max(len(src[place]), len(tgt[place])) + 1 for place in order], BATCH_TOKENS):
        places = [order[each] for each in some]
        yield places, make_batch([src[place] for place in places], [tgt[place] for place in places])


@torch.no_grad()
def token_costs(model: Seq2Seq, batch: Batch) -> Float[Tensor, "B T"]:
    """Gives −log p of what should be said, EOS included; padding costs nothing and is never scored."""
    batch = batch.to(next(model.parameters()).device)
    logits = model.output(model.features(batch)[batch.tgt.token_mask])
    kind = torch.promote_types(logits.dtype, torch.float32)
    costs = F.cross_entropy(logits.to(kind), batch.tgt.labels[batch.tgt.token_mask], reduction="none")
    return (
        torch.zeros(batch.tgt.token_mask.shape, dtype=kind, device=costs.device)
        .masked_scatter(batch.tgt.token_mask, costs)
        .cpu()
    )
