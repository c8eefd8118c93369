"""The contract of a position scheme, biases by offset, precomputed codes, and checks."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.shapes import Float, Int


@dataclass(frozen=True, eq=False)
class OffsetBias:
    """`table[…, clip(r − l, −m, m) + m] − slope · |r − l|` for the query at l and the key at r.

    One entry for each offset up to m, shared by all queries or for each query; offsets beyond m take the last entry.
    Either part may be absent. Θ(m) memory where the bias itself is Θ(QK).
    """

    q_positions: Int[Tensor, "#B Q"]
    k_positions: Int[Tensor, "#B K"]
    table: Float[Tensor, "#B H #Q W"] | None = None
    slopes: Float[Tensor, " H"] | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the materialised bias, (#B, H, Q, K)."""
        B = max(len(self.q_positions), len(self.k_positions), 1 if self.table is None else len(self.table))
        heads = self.slopes if self.table is None else self.table[0]
        assert heads is not None, "a bias by offset has a table or slopes"
        return B, len(heads), self.q_positions.shape[1], self.k_positions.shape[1]

    @property
    def max_offset(self) -> int:
        """The offset m from which on all take the last entry."""
        return 0 if self.table is None else (self.table.shape[-1] - 1) // 2

    def materialise(self, dtype: torch.dtype) -> Float[Tensor, "#B H Q K"]:
        """Return the bias of every pair: the definition."""
        offset = (self.k_positions[:, None, :] - self.q_positions[:, :, None])[:, None]  # (#B, 1, Q, K)
        parts = []
        if self.table is not None:
            rows = offset.clamp(-self.max_offset, self.max_offset) + self.max_offset
            B = max(len(offset), len(self.table))
            full = (B, self.table.shape[1], *offset.shape[2:])
            table = self.table.expand(B, -1, offset.shape[2], -1)
            parts.append(table.gather(-1, rows.expand(full)).to(dtype))
        if self.slopes is not None:
            parts.append(-(offset.abs() * self.slopes[:, None, None]).to(dtype))
        return sum(parts[1:], parts[0])


def dense(bias: Float[Tensor, "#B #H #Q #K"] | OffsetBias | None, dtype: torch.dtype) -> Tensor | None:
    """Return a bias as a tensor, whichever way it came."""
    return bias.materialise(dtype) if isinstance(bias, OffsetBias) else bias


class Position(nn.Module):
    """A position scheme, which acts in one or more of four places: `embed`, `rotate`, `bias` and `pool`.

    A place that a scheme does not override does nothing. Positions are given explicitly, one number for each token, or
    `n_axes` numbers for grids and dialogues, so that a step with a cache is not a special case. What is padding in
    every sentence has position 0.
    """

    n_axes = 1
    limit: int | None = None  # positions from here on are refused

    def first_positions(self, n: int) -> Int[Tensor, "1 T *axes"]:
        """Return the positions of n tokens in reading order, which schemes with several axes define."""
        return torch.arange(n)[None]

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "#B T *axes"]) -> Float[Tensor, "B T D2"]:
        """Return the token's vector with its position in it."""
        return x

    def rotate(self, x: Float[Tensor, "B H T E"], positions: Int[Tensor, "#B T *axes"]) -> Float[Tensor, "B H T E"]:
        """Return queries or keys rotated by their position."""
        return x

    def bias(
        self,
        q: Float[Tensor, "B H Q E"],
        k: Float[Tensor, "B H K E2"],
        q_positions: Int[Tensor, "#B Q *axes"],
        k_positions: Int[Tensor, "#B K *axes"],
    ) -> Float[Tensor, "#B H Q K"] | None:
        """Return what is added to the scores."""
        return None

    def offset_bias(
        self,
        q: Float[Tensor, "B H Q E"],
        q_positions: Int[Tensor, "#B Q *axes"],
        k_positions: Int[Tensor, "#B K *axes"],
    ) -> OffsetBias | None:
        """Return the same bias by offset, in less memory, where it depends on the offset alone."""
        return None

    def pool(
        self,
        weights: Callable[[], Float[Tensor, "B H Q K"]],
        q_positions: Int[Tensor, "#B Q *axes"],
        k_positions: Int[Tensor, "#B K *axes"],
    ) -> Float[Tensor, "B H Q E"] | None:
        """Return what is added to the attention's output; the weights are built only if a scheme asks for them."""
        return None


def check(positions: Int[Tensor, "..."], limit: int | None = None, name: str = "positions", n_axes: int = 1) -> None:
    """Raise ValueError for positions with the wrong number of coordinates, below 0, or at or past `limit`."""
    axes = () if n_axes == 1 else (n_axes,)
    if positions.dim() < 2 or tuple(positions.shape[2:]) != axes:
        wanted = ", ".join(["B", "T", *map(str, axes)])
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(positions.shape)}")
    check_range(positions, limit, name)


def check_range(positions: Int[Tensor, "..."], limit: int | None, name: str) -> None:
    """Raise ValueError for a position below 0, or at or past `limit`.

    The values are read back from the device, which a captured or compiled step cannot do; that has always run once
    before without capture.
    """
    capturing = positions.is_cuda and torch.cuda.is_current_stream_capturing()
    if torch.compiler.is_compiling() or capturing or positions.numel() == 0:
        return
    low, high = (int(end) for end in torch.aminmax(positions))
    if low < 0:
        raise ValueError(f"{name} must be 0 or more, got {low}")
    if limit is not None and high >= limit:
        raise ValueError(f"{name} must be below {limit}, the end of the table, got {high}: build a larger table")


def offsets(q_positions: Int[Tensor, "#B Q"], k_positions: Int[Tensor, "#B K"]) -> Int[Tensor, "#B Q K"]:
    """Return key position minus query position: negative for keys before the query."""
    check_both(q_positions, k_positions)
    return k_positions[:, None, :] - q_positions[:, :, None]


def check_both(q_positions: Int[Tensor, "#B Q"], k_positions: Int[Tensor, "#B K"]) -> None:
    """Raise ValueError for positions that no relative scheme can take."""
    check(q_positions, name="q_positions")
    check(k_positions, name="k_positions")


def add(x: Float[Tensor, "B T D"], codes: Float[Tensor, "#B T D2"]) -> Float[Tensor, "B T D"]:
    """Add the code to the vector: no extra width, but vector and code share it."""
    if codes.shape[-1] != x.shape[-1]:
        raise ValueError(f"codes to be added must be as wide as the vectors, {x.shape[-1]}, got {codes.shape[-1]}")
    return x + codes


def concatenate(x: Float[Tensor, "B T D"], codes: Float[Tensor, "#B T D2"]) -> Float[Tensor, "B T D3"]:
    """Concatenate the code to the vector: each keeps its own features, and every later layer is wider."""
    return torch.cat([x, codes.expand(x.shape[0], -1, -1)], dim=-1)


JOIN = {"add": add, "concatenate": concatenate}


KNOWN_POSITIONS = 512  # whose codes are kept; later ones are computed when a sentence gets there


class PositionTable:
    """What a scheme adds to the token at each position, and how it rotates heads of `d_rotary` features.

    For each pair of features a rotation is its cosine and its sine.
    """

    def __init__(self, position: Position, like: Float[Tensor, "V D"], d_rotary: int = 0):
        self.position = position
        self.d_rotary = d_rotary
        self.zeros = like.new_zeros(like.shape[1])
        self.known = self._compute(0, min(KNOWN_POSITIONS, position.limit or KNOWN_POSITIONS))

    def at(self, first: int, end: int) -> Float[Tensor, "T C"]:
        """Return the codes of a range of positions."""
        return self.known[first:end] if end <= len(self.known) else self._compute(first, end)

    def _compute(self, first: int, end: int) -> Tensor:
        """What is added is what a vector of zeros becomes, and a rotation what pairs of 1 and 0 become."""
        positions = torch.arange(first, end, device=self.zeros.device)[None]
        pairs = self.zeros.new_zeros(1, 1, end - first, self.d_rotary)
        pairs[..., ::2] = 1.0
        with torch.no_grad():
            added = self.position.embed(self.zeros.expand(1, end - first, -1), positions)[0]
            rotations = self.position.rotate(pairs, positions)[0, 0]
        return torch.cat([added, rotations], dim=-1).contiguous()
