"""Ids become a batch: the only file that knows padding, lengths and shifting."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.mask import Mask, causal

PAD, UNK, BOS, EOS = 0, 1, 2, 3

Ids = Sequence[int] | NDArray[np.unsignedinteger]


@dataclass(frozen=True, eq=False)
class Source:
    """Source sentences: ids, where each stands, and which of them are real."""

    ids: Int[Tensor, "B S"]
    positions: Int[Tensor, "B S"]
    lengths: Int[Tensor, " B"]
    mask: Mask  # who may look at these tokens: everyone at the real ones

    def to(self, device: torch.device) -> "Source":
        """Moves to a device."""
        lengths = self.lengths.to(device, non_blocking=True)
        mask = self.mask if self.mask.key_lengths is None else Mask(n_keys=self.mask.n_keys, key_lengths=lengths)
        ids, positions = (x.to(device, non_blocking=True) for x in (self.ids, self.positions))
        return Source(ids, positions, lengths, mask)


@dataclass(frozen=True, eq=False)
class Target:
    """Target sentences, shifted: what the decoder reads, and what it should say next."""

    read: Int[Tensor, "B T"]
    say: Int[Tensor, "B T"]
    positions: Int[Tensor, "B T"]
    real: Bool[Tensor, "B T"]
    n_tokens: int  # real ones
    mask: Mask  # causal alone: padding comes last, so a real token sees none of it

    def to(self, device: torch.device) -> "Target":
        """Moves to a device."""
        read, say, positions, real = (
            x.to(device, non_blocking=True) for x in (self.read, self.say, self.positions, self.real)
        )
        return Target(read, say, positions, real, self.n_tokens, self.mask)


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
    ids, lengths = _padded(sentences, [], [EOS], width)
    return Source(ids, _positions(lengths, ids.shape[1]), lengths, _key_mask(lengths, ids.shape[1]))


def make_batch(src: Sequence[Ids], tgt: Sequence[Ids], widths: tuple[int, int] | None = None) -> Batch:
    """Pads pairs: the decoder reads BOS and the sentence, and should say the sentence and EOS."""
    if len(src) != len(tgt):
        raise ValueError(f"there must be one target for each source, got {len(src)} and {len(tgt)}")
    src_width, tgt_width = widths or (None, None)
    read, lengths = _padded(tgt, [BOS], [], tgt_width)
    say, _ = _padded(tgt, [], [EOS], tgt_width)
    real = torch.arange(read.shape[1]) < lengths[:, None]
    target = Target(read, say, _positions(lengths, read.shape[1]), real, int(lengths.sum()), causal())
    return Batch(make_source(src, src_width), target)


def _padded(sentences: Sequence[Ids], head: list[int], tail: list[int], width: int | None) -> tuple[Tensor, Tensor]:
    """Sets each sentence between head and tail, and fills up with PAD."""
    extra = len(head) + len(tail)
    lengths = np.array([len(sentence) + extra for sentence in sentences], dtype=np.int64)
    longest = int(lengths.max(initial=0))
    width = longest if width is None else width
    if longest > width:
        raise ValueError(f"a sentence of {longest} ids does not fit a batch {width} wide")
    ids = np.full((len(sentences), width), PAD, dtype=np.int64)
    for row, sentence, length in zip(ids, sentences, lengths, strict=True):
        row[:length] = np.concatenate([head, sentence, tail])
    return torch.from_numpy(ids), torch.from_numpy(lengths)


def _positions(lengths: Tensor, width: int) -> Tensor:
    places = torch.arange(width)
    return places * (places < lengths[:, None])  # padding stands at 0


def _key_mask(lengths: Tensor, width: int) -> Mask:
    """Masks the padding; where there is none the kernels are told so."""
    full = len(lengths) == 0 or int(lengths.min()) == width
    return Mask() if full else Mask(n_keys=width, key_lengths=lengths)
