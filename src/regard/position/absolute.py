"""Codes that join the token's vector: none, index, normalised, sinusoidal, learned, half-wave, grids, turns."""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from regard.config import choose
from regard.position.contract import JOIN, Position, check, check_range
from regard.shapes import Float, Int


class Absolute(Position, ABC):
    """Join a code of `width` features, defined by a subclass, with the token's vector."""

    def __init__(self, width: int, join: str = "add", limit: int | None = None):
        super().__init__()
        if width < 1:
            raise ValueError(f"width must be 1 or more features, got {width}")
        if limit is not None and limit < 1:
            raise ValueError(f"max_len must be 1 or more positions, got {limit}")
        self.width = width
        self.limit = limit
        self.join = choose(JOIN, join, "join")

    @abstractmethod
    def codes(self, positions: Int[Tensor, "B T *axes"]) -> Float[Tensor, "B T D"]:
        """Return the code of each position, in float64 where it is a formula."""

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "#B T *axes"]) -> Float[Tensor, "B T D2"]:
        check(positions, self.limit, n_axes=self.n_axes)
        return self.join(x, self.codes(positions).to(x.dtype))


class NoPosition(Position):
    """Do nothing: the model knows no order but that of its masks."""


class Index(Absolute):
    """Encode position p by the number p in every feature. Steps are even, but nothing bounds the code."""

    def codes(self, positions: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return positions[..., None].to(torch.float64).expand(*positions.shape, self.width)


class Normalised(Absolute):
    """Encode position p of T by `p / (T − 1)` in every feature, T − 1 being the last position of the row.

    Bounded by 1, but a step has another size in every sentence, and a decoder that writes token by token cannot know T:
    only encoders can use it.
    """

    def codes(self, positions: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        if positions.numel() == 0:
            return positions.new_zeros(*positions.shape, self.width, dtype=torch.float64)
        last = positions.amax(dim=-1, keepdim=True).clamp(min=1)  # a sentence of one token stands at 0
        share = positions.to(torch.float64) / last
        return share[..., None].expand(*share.shape, self.width)


class Sinusoidal(Absolute):
    """Encode position p by `sin(p ω_i), cos(p ω_i)` in turn, `ω_i = base^(−2i/width)` (arXiv:1706.03762, section 3.5).

    No parameters, no largest position. A step of k is one rotation in each pair of features, wherever it starts.
    """

    def __init__(self, width: int, base: float = 10000.0, join: str = "add"):
        super().__init__(width, join)
        self.base = check_base(base)

    def codes(self, positions: Int[Tensor, "*B"]) -> Float[Tensor, "*B D"]:
        return sinusoids(positions, self.width, self.base)


def check_base(base: float) -> float:
    """Return the base of the wavelengths, or raise ValueError where they would not grow."""
    if not base > 1.0:
        raise ValueError(f"base must be larger than 1, got {base}")
    if base == math.inf:
        raise ValueError(f"base must be a finite number, got {base}")
    return base


def frequencies(width: int, base: float, device: torch.device | None = None) -> Float[Tensor, " pairs"]:
    """Return `ω_i = base^(−2i/width)` for each pair of features; an odd width has a last sine without its cosine."""
    return check_base(base) ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)


def sinusoids(positions: Int[Tensor, "*B"], width: int, base: float) -> Float[Tensor, "*B D"]:
    """Return sines and cosines interleaved. In float64: at position 10⁶ a float32 angle is off by a twentieth."""
    angles = positions[..., None].to(torch.float64) * frequencies(width, base, positions.device)
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (*B, pairs, 2)
    return pairs.flatten(-2)[..., :width]


def shift_matrix(steps: int, width: int, base: float) -> Float[Tensor, "D D"]:
    """Return M with `M PE(p) = PE(p + steps)` for every p: each pair of features rotates by `ω_i · steps`."""
    if width % 2:
        raise ValueError(f"width must be even, so that each sine has its cosine, got {width}")
    angles = frequencies(width, base) * steps
    cos, sin = angles.cos(), angles.sin()
    return torch.block_diag(*torch.stack([cos, sin, -sin, cos], dim=-1).view(-1, 2, 2))


class Learned(Absolute):
    """Encode position p by row p of a learned table (Gehring et al. 2017, arXiv:1705.03122).

    `max_len · width` parameters; positions past the table's end are refused.
    """

    def __init__(self, width: int, max_len: int = 1024, join: str = "add"):
        super().__init__(width, join, max_len)
        # Initialised small, as in BERT and GPT-2: far below the token vectors, so that order is learned, not forced.
        self.table: Float[Tensor, "P D"] = nn.Parameter(torch.randn(max_len, width) * 0.02)

    def codes(self, positions: Int[Tensor, "*B"]) -> Float[Tensor, "*B D"]:
        return self.table[positions]


class HalfWave(Absolute):
    """Encode position p by `sin(πp / L), cos(πp / L)` in turn with L = `max_len`.

    Unique and bounded, and a step is a rotation; but neighbours in a long table are almost the same point.
    """

    def __init__(self, width: int, max_len: int = 1024, join: str = "add"):
        super().__init__(width, join, max_len)
        self.max_len = max_len

    def codes(self, positions: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        angles = positions.to(torch.float64) * (math.pi / self.max_len)
        pair = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (B, T, 2)
        return pair.repeat(1, 1, (self.width + 1) // 2)[..., : self.width]


class Grid(Absolute):
    """Encode a cell by the sinusoidal codes of its coordinates, concatenated (after arXiv:2010.11929, D.4).

    The width is divided evenly among the axes in pairs of sine and cosine; pairs left over go to the first axes, an odd
    last feature to the last.
    """

    def __init__(self, width: int, n_axes: int, base: float = 10000.0, join: str = "add"):
        super().__init__(width, join)
        if width < n_axes:
            raise ValueError(f"width must have a feature for each of the {n_axes} axes, got {width}")
        self.n_axes = n_axes
        self.base = check_base(base)

    def first_positions(self, n: int) -> Int[Tensor, "1 T A"]:
        """Return the first n cells of the smallest square or cube that holds them, row by row."""
        side = next(side for side in range(1, n + 2) if side**self.n_axes >= n)
        strides = torch.tensor([side**axis for axis in reversed(range(self.n_axes))])
        return (torch.arange(n)[:, None] // strides % side)[None]

    def codes(self, positions: Int[Tensor, "B T A"]) -> Float[Tensor, "B T D"]:
        coded = [sinusoids(positions[..., axis], w, self.base) for axis, w in enumerate(self.widths())]
        return torch.cat(coded, dim=-1)

    def widths(self) -> list[int]:
        """Return the number of features for each axis."""
        step = 2 if self.width >= 2 * self.n_axes else 1
        share, left = divmod(self.width // step, self.n_axes)
        widths = [step * (share + (axis < left)) for axis in range(self.n_axes)]
        widths[-1] += self.width - sum(widths)
        return widths


class Turns(Absolute):
    """Encode (token, turn, speaker) by two sinusoidal codes and a learned one, concatenated (after arXiv:1901.08149).

    Turn and speaker take a quarter of the width each. `n_speakers · width / 4` parameters.
    """

    n_axes = 3

    def __init__(self, width: int, n_speakers: int = 2, base: float = 10000.0, join: str = "add"):
        super().__init__(width, join)
        if width < 3:
            raise ValueError(f"width must have a feature for token, turn and speaker, got {width}")
        if n_speakers < 1:
            raise ValueError(f"n_speakers must be 1 or more, got {n_speakers}")
        self.base = check_base(base)
        self.quarter = max(1, width // 4)
        self.speakers: Float[Tensor, "speakers D"] = nn.Parameter(torch.randn(n_speakers, self.quarter) * 0.02)

    def first_positions(self, n: int) -> Int[Tensor, "1 T 3"]:
        """Return a dialogue in which the speakers take turns of eight tokens."""
        token = torch.arange(n)
        return torch.stack([token, token // 8, token // 8 % len(self.speakers)], dim=-1)[None]

    def codes(self, positions: Int[Tensor, "B T 3"]) -> Float[Tensor, "B T D"]:
        token, turn, speaker = positions.unbind(dim=-1)
        check_range(speaker, len(self.speakers), "speakers")
        token_codes = sinusoids(token, self.width - 2 * self.quarter, self.base)
        turn_codes = sinusoids(turn, self.quarter, self.base)
        return torch.cat([token_codes, turn_codes, self.speakers[speaker].to(token_codes.dtype)], dim=-1)
