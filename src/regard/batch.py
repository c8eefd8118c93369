"""Ids become a batch: the only file that knows padding, lengths and shifting."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.mask import Mask, causal
from regard.padding import BOS, EOS, Ids, pad

Rows = tuple[NDArray[np.int64], NDArray[np.int64]]  # ids of some sentences, (B, width), and how many are real


@dataclass(frozen=True, eq=False)
class Source:
    """Source sentences: ids, where each stands, and which of them are real."""

    ids: Int[Tensor, "B S"]
    positions: Int[Tensor, "1 S"]
    lengths: Int[Tensor, " B"]
    mask: Mask  # who may look at these tokens: everyone at the real ones

    def to(self, device: torch.device) -> "Source":
        """Moves to a device."""
        lengths = self.lengths.to(device, non_blocking=True)
        mask = self.mask if self.mask.key_lengths is None else replace(self.mask, key_lengths=lengths)
        ids, positions = (x.to(device, non_blocking=True) for x in (self.ids, self.positions))
        return Source(ids, positions, lengths, mask)


@dataclass(frozen=True, eq=False)
class Target:
    """Target sentences, shifted: what the decoder reads, and what it should say next."""

    inputs: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]
    positions: Int[Tensor, "1 T"]
    token_mask: Bool[Tensor, "B T"]
    n_tokens: int  # real ones
    mask: Mask  # causal alone: padding comes last, so a real token sees none of it

    def to(self, device: torch.device) -> "Target":
        """Moves to a device."""
        inputs, labels, positions, token_mask = (
            x.to(device, non_blocking=True) for x in (self.inputs, self.labels, self.positions, self.token_mask)
        )
        return Target(inputs, labels, positions, token_mask, self.n_tokens, self.mask)


@dataclass(frozen=True)
class BatchShape:
    """The room for a batch: its rows, and its columns on either side, the end of the sentence included."""

    rows: int
    src: int
    tgt: int


@dataclass(frozen=True, eq=False)
class Batch:
    """Some sentence pairs."""

    src: Source
    tgt: Target

    def to(self, device: torch.device) -> "Batch":
        """Moves to a device."""
        return Batch(self.src.to(device), self.tgt.to(device))


def make_source(sentences: Sequence[Ids], width: int | None = None) -> Source:
    """Pads source sentences, each closed by EOS, to the longest or to a given width."""
    ids, n = pad(sentences, tail=[EOS], width=width)
    columns, lengths = np.arange(ids.shape[1]), torch.from_numpy(n)
    positions = columns * (columns < n.max(initial=0))  # as `_positions`; small arrays cost less than small tensors
    full = bool((n == len(columns)).all())
    mask = Mask() if full else Mask(n_keys=len(columns), key_lengths=lengths, no_empty_rows=True)
    return Source(torch.from_numpy(ids), torch.from_numpy(positions[None]), lengths, mask)


def make_batch(src: Sequence[Ids], tgt: Sequence[Ids], widths: tuple[int, int] | None = None) -> Batch:
    """Pads pairs: the decoder reads BOS and the sentence, and should say the sentence and EOS."""
    if len(src) != len(tgt):
        raise ValueError(f"there must be one target for each source, got {len(src)} and {len(tgt)}")
    src_width, tgt_width = widths or (None, None)
    (inputs, lengths), (labels, _) = (
        map(torch.from_numpy, pad(tgt, head, tail, tgt_width)) for head, tail in (([BOS], []), ([], [EOS]))
    )
    token_mask = torch.arange(inputs.shape[1]) < lengths[:, None]
    target = Target(inputs, labels, _positions(token_mask), token_mask, int(lengths.sum()), causal())
    return Batch(make_source(src, src_width), target)


def pack(src: Rows, tgt: Rows, shape: BatchShape) -> Int[Tensor, " N"]:
    """Lays the ids of a batch out in one row of numbers, which a device takes in one copy; `unpack` is its inverse.

    Sources are closed by EOS, targets stand between BOS and EOS. Rows that a batch does not fill say nothing: their
    source is EOS alone, and none of their target tokens is real.
    """
    (src_ids, src_lengths), (tgt_ids, tgt_lengths) = src, tgt
    n, B = len(src_ids), shape.rows
    packed = torch.zeros(B * (shape.src + shape.tgt + 3), dtype=torch.int32)
    ids, ends, written, said = _parts(packed, shape)
    ids[n:, 0], ends[n:] = EOS, 1
    for target, value in ((ids, src_ids), (ends, src_lengths), (written, tgt_ids), (said, tgt_lengths - 1)):
        target[:n] = torch.from_numpy(value)
    return packed


def unpack(packed: Int[Tensor, " N"], shape: BatchShape, full: bool, n_tokens: int) -> Batch:
    """Makes a batch on the device where the packed ids lie, without asking it anything; `full` is without padding."""
    ids, ends, written, said = _parts(packed.long(), shape)
    token_mask = torch.arange(shape.tgt, device=packed.device) < said[:, None]
    inputs, labels = written[:, :-1] * token_mask, written[:, 1:] * token_mask
    target = Target(inputs, labels, _positions(token_mask), token_mask, n_tokens, causal())
    return Batch(padded_source(ids, ends, full), target)


def padded_source(ids: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], full: bool) -> Source:
    """Makes a source of ids that end with EOS and PAD, on their device and without asking it anything."""
    token_mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
    mask = Mask() if full else Mask(n_keys=ids.shape[1], key_lengths=lengths, no_empty_rows=True)
    return Source(ids, _positions(token_mask), lengths, mask)


def duplicate_rows(batch: Batch) -> Batch:
    """Sets a batch below itself."""
    src, tgt = batch.src, batch.tgt
    ids, lengths = (torch.cat([x, x]) for x in (src.ids, src.lengths))
    mask = src.mask if src.mask.key_lengths is None else replace(src.mask, key_lengths=lengths)
    inputs, labels, token_mask = (torch.cat([x, x]) for x in (tgt.inputs, tgt.labels, tgt.token_mask))
    target = Target(inputs, labels, tgt.positions, token_mask, 2 * tgt.n_tokens, tgt.mask)
    return Batch(Source(ids, src.positions, lengths, mask), target)


def _parts(packed: Tensor, shape: BatchShape) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gives source ids and lengths, target ids from BOS to EOS, and the number of tokens to say."""
    B = shape.rows
    ids, ends, written, said = packed.split([B * shape.src, B, B * (shape.tgt + 1), B])
    return ids.view(B, shape.src), ends, written.view(B, shape.tgt + 1), said


def _positions(token_mask: Bool[Tensor, "B T"]) -> Int[Tensor, "1 T"]:
    """Gives where each column stands, once for all sentences; one that is padding in all of them stands at 0."""
    return torch.arange(token_mask.shape[1], device=token_mask.device) * token_mask.any(dim=0, keepdim=True)
