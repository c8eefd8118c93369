"""Ids become a batch: the only file that knows padding, lengths and shifting."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.mask import Mask, causal

PAD, UNK, BOS, EOS = 0, 1, 2, 3


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


def make_source(sentences: Sequence[Sequence[int]], width: int | None = None) -> Source:
    """Pads source sentences, each closed by EOS, to the longest or to a given width."""
    closed = [[*sentence, EOS] for sentence in sentences]
    ids, lengths = _padded(closed, width)
    return Source(ids, _positions(lengths, ids.shape[1]), lengths, _key_mask(lengths, ids.shape[1]))


def make_batch(
    src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]], widths: tuple[int, int] | None = None
) -> Batch:
    """Pads pairs: the decoder reads BOS and the sentence, and should say the sentence and EOS."""
    if len(src) != len(tgt):
        raise ValueError(f"there must be one target for each source, got {len(src)} and {len(tgt)}")
    width = None if widths is None else widths[1]
    read, lengths = _padded([[BOS, *sentence] for sentence in tgt], width)
    say, _ = _padded([[*sentence, EOS] for sentence in tgt], width)
    places = torch.arange(read.shape[1])
    target = Target(
        read, say, _positions(lengths, read.shape[1]), places < lengths[:, None], int(lengths.sum()), causal()
    )
    return Batch(make_source(src, None if widths is None else widths[0]), target)


def _padded(sentences: Sequence[Sequence[int]], width: int | None) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    longest = int(lengths.max()) if len(lengths) else 0
    width = longest if width is None else width
    if longest > width:
        raise ValueError(f"a sentence of {longest} ids does not fit a batch {width} wide")
    ids = torch.full((len(sentences), width), PAD)
    for row, sentence in zip(ids, sentences, strict=True):
        row[: len(sentence)] = torch.as_tensor(sentence)
    return ids, lengths


def _positions(lengths: Tensor, width: int) -> Tensor:
    places = torch.arange(width)
    return places * (places < lengths[:, None])  # padding stands at 0


def _key_mask(lengths: Tensor, width: int) -> Mask:
    """Masks the padding; where there is none the kernels are told so."""
    full = len(lengths) == 0 or int(lengths.min()) == width
    return Mask() if full else Mask(n_keys=width, key_lengths=lengths)
