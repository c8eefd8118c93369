"""Ids become a batch of tensors: the only file that knows padding, lengths and shifting."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.mask import Mask, causal
from regard.padding import BOS, EOS, Ids, pad
from regard.shapes import Bool, Int

Rows = tuple[NDArray[np.int64], NDArray[np.int64]]  # padded ids of some sentences, (B, width), and their lengths


@dataclass(frozen=True, eq=False)
class Source:
    """Padded source sentences."""

    ids: Int[Tensor, "B S"]
    positions: Int[Tensor, "1 S"]
    lengths: Int[Tensor, " B"]
    mask: Mask  # of attention to these tokens: all may be attended to but padding

    @property
    def token_mask(self) -> Bool[Tensor, "B S"]:
        """True at tokens, false at padding."""
        return sequence_mask(self.lengths, self.ids.shape[1])

    def to(self, device: torch.device) -> "Source":
        lengths = self.lengths.to(device, non_blocking=True)
        mask = self.mask if self.mask.key_lengths is None else replace(self.mask, key_lengths=lengths)
        ids, positions = (x.to(device, non_blocking=True) for x in (self.ids, self.positions))
        return Source(ids, positions, lengths, mask)


@dataclass(frozen=True, eq=False)
class Target:
    """Padded target sentences, shifted: what the decoder reads, and the tokens that should follow.

    `mask` is the rule of self-attention; which entries are tokens and which padding is `token_mask`.
    """

    inputs: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]
    positions: Int[Tensor, "1 T"]
    token_mask: Bool[Tensor, "B T"]  # true at tokens, false at padding
    n_tokens: int  # without padding
    mask: Mask  # causal alone: padding comes last, so that no token attends to it

    def to(self, device: torch.device) -> "Target":
        inputs, labels, positions, token_mask = (
            x.to(device, non_blocking=True) for x in (self.inputs, self.labels, self.positions, self.token_mask)
        )
        return Target(inputs, labels, positions, token_mask, self.n_tokens, self.mask)


@dataclass(frozen=True)
class BatchShape:
    """The size of a batch: its rows, and the columns of either side, the end of the sentence included."""

    rows: int
    src: int
    tgt: int


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentence pairs."""

    src: Source
    tgt: Target

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.src.to(device), self.tgt.to(device))


def sequence_mask(lengths: Int[Tensor, " B"], width: int) -> Bool[Tensor, "B T"]:
    """Return true for the first `lengths[b]` of `width` columns."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def make_source(sentences: Sequence[Ids], width: int | None = None) -> Source:
    """Pad source sentences, each closed by EOS, to the longest or to a given width."""
    ids, n = pad(sentences, tail=[EOS], width=width)
    columns, lengths = np.arange(ids.shape[1]), torch.from_numpy(n)
    positions = columns * (columns < n.max(initial=0))  # as `_positions`; small arrays are faster than small tensors
    full = bool((n == len(columns)).all())
    mask = Mask() if full else Mask(n_keys=len(columns), key_lengths=lengths, no_empty_rows=True)
    return Source(torch.from_numpy(ids), torch.from_numpy(positions[None]), lengths, mask)


def make_batch(src: Sequence[Ids], tgt: Sequence[Ids], widths: tuple[int, int] | None = None) -> Batch:
    """Pad pairs: the decoder reads BOS and the sentence, and is to write the sentence and EOS."""
    if len(src) != len(tgt):
        raise ValueError(f"there must be one target for each source, got {len(src)} and {len(tgt)}")
    src_width, tgt_width = widths or (None, None)
    (inputs, lengths), (labels, _) = (
        map(torch.from_numpy, pad(tgt, head, tail, tgt_width)) for head, tail in (([BOS], []), ([], [EOS]))
    )
    token_mask = sequence_mask(lengths, inputs.shape[1])
    target = Target(inputs, labels, _positions(token_mask), token_mask, int(lengths.sum()), causal())
    return Batch(make_source(src, src_width), target)


def pack(src: Rows, tgt: Rows, shape: BatchShape) -> Int[Tensor, " N"]:
    """Lay the ids of a batch out in one vector, which goes to a device in one copy; `unpack` is the inverse.

    Sources are closed by EOS, targets stand between BOS and EOS. Rows that a batch does not fill are empty sentences:
    their source is EOS alone, their target all padding.
    """
    (src_ids, src_lengths), (tgt_ids, tgt_lengths) = src, tgt
    n, B = len(src_ids), shape.rows
    packed = torch.zeros(B * (shape.src + shape.tgt + 3), dtype=torch.int32)
    ids, lengths, targets, n_labels = _parts(packed, shape)
    ids[n:, 0], lengths[n:] = EOS, 1
    for target, value in ((ids, src_ids), (lengths, src_lengths), (targets, tgt_ids), (n_labels, tgt_lengths - 1)):
        target[:n] = torch.from_numpy(value)
    return packed


def unpack(packed: Int[Tensor, " N"], shape: BatchShape, full: bool, n_tokens: int) -> Batch:
    """Make a batch on the device of the packed ids, without waiting for it; `full` says that no source is padded."""
    ids, lengths, targets, n_labels = _parts(packed.long(), shape)
    token_mask = sequence_mask(n_labels, shape.tgt)
    inputs, labels = targets[:, :-1] * token_mask, targets[:, 1:] * token_mask
    target = Target(inputs, labels, _positions(token_mask), token_mask, n_tokens, causal())
    return Batch(padded_source(ids, lengths, full), target)


def padded_source(ids: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], full: bool) -> Source:
    """Make a source of ids that end with EOS and PAD, on their device and without waiting for it."""
    mask = Mask() if full else Mask(n_keys=ids.shape[1], key_lengths=lengths, no_empty_rows=True)
    return Source(ids, _positions(sequence_mask(lengths, ids.shape[1])), lengths, mask)


def duplicate_rows(batch: Batch) -> Batch:
    """Return a batch of all rows followed by the same rows again."""
    src, tgt = batch.src, batch.tgt
    ids, lengths = (torch.cat([x, x]) for x in (src.ids, src.lengths))
    mask = src.mask if src.mask.key_lengths is None else replace(src.mask, key_lengths=lengths)
    inputs, labels, token_mask = (torch.cat([x, x]) for x in (tgt.inputs, tgt.labels, tgt.token_mask))
    target = Target(inputs, labels, tgt.positions, token_mask, 2 * tgt.n_tokens, tgt.mask)
    return Batch(Source(ids, src.positions, lengths, mask), target)


def _parts(packed: Tensor, shape: BatchShape) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return views of source ids and lengths, of target ids from BOS to EOS, and of the number of labels."""
    B = shape.rows
    ids, lengths, targets, n_labels = packed.split([B * shape.src, B, B * (shape.tgt + 1), B])
    return ids.view(B, shape.src), lengths, targets.view(B, shape.tgt + 1), n_labels


def _positions(token_mask: Bool[Tensor, "B T"]) -> Int[Tensor, "1 T"]:
    """Return the position of each column, the same in all sentences; one that is padding in all of them has 0."""
    return torch.arange(token_mask.shape[1], device=token_mask.device) * token_mask.any(dim=0, keepdim=True)
