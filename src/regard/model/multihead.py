"""Multi-head attention and its cache of keys and values."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import ops
from regard.attention import Attention
from regard.mask import Mask
from regard.model.layers import Linear
from regard.position import Position
from regard.shapes import Float, Int


def split_heads(x: Float[Tensor, "B T D"], n_heads: int) -> Float[Tensor, "B H T E"]:
    """Split each token's features into `n_heads` equal parts."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B H T E"]) -> Float[Tensor, "B T D"]:
    """Concatenate the heads' features again."""
    return x.transpose(1, 2).flatten(2)


@dataclass(frozen=True, eq=False)
class KeysValues:
    """Projected keys and values of some tokens, and the tokens' positions."""

    k: Float[Tensor, "B H K E"]
    v: Float[Tensor, "B H K E"]
    positions: Int[Tensor, "#B K *axes"]

    def append(self, later: "KeysValues") -> "KeysValues":
        """Return these tokens followed by later ones."""
        k, v = torch.cat([self.k, later.k], dim=2), torch.cat([self.v, later.v], dim=2)
        return KeysValues(k, v, torch.cat([self.positions, later.positions], dim=1))

    def select_rows(self, index: Int[Tensor, " R"]) -> "KeysValues":
        """Return some rows, in any order."""
        shared = self.positions.shape[0] == 1
        return KeysValues(self.k[index], self.v[index], self.positions if shared else self.positions[index])


class MultiHeadAttention(nn.Module):
    """`concat(head_1, …, head_H) W_O`, `head_i = attention(x_q W_Q, x_k W_K, x_v W_V)` (arXiv:1706.03762, 3.2.2).

    Each head works on d_model / n_heads features; all heads are one batched product. Queries, keys and values may have
    widths of their own. 4 D² parameters where all widths are D.
    """

    def __init__(
        self,
        attention: Attention,
        position: Position,
        d_model: int,
        n_heads: int,
        d_inputs: tuple[int, int, int] | None = None,
        bias: bool = True,
    ):
        super().__init__()
        d_query, d_key, d_value = d_inputs or (d_model, d_model, d_model)
        check_sizes(d_model, n_heads, d_query, d_key, d_value)
        self.n_heads = n_heads
        self.attention = attention
        self.position = position
        self.w_q = Linear(d_query, d_model, bias)
        self.w_k = Linear(d_key, d_model, bias)
        self.w_v = Linear(d_value, d_model, bias)
        self.w_o = Linear(d_model, d_model, bias)
        for projection in (self.w_q, self.w_k, self.w_v, self.w_o):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def keys_values(
        self,
        keys: Float[Tensor, "B K D2"],
        values: Float[Tensor, "B K D3"],
        positions: Int[Tensor, "#B K *axes"],
    ) -> KeysValues:
        """Project keys and values, once for all queries that will attend to them."""
        check_width(keys, self.w_k.in_features, "keys")
        check_width(values, self.w_v.in_features, "values")
        k, v = ops.joint_linear(keys, (self.w_k, self.w_v)) if keys is values else (self.w_k(keys), self.w_v(values))
        return self._cached(k, v, positions)

    def attend(
        self,
        queries: Float[Tensor, "B Q D"],
        at: KeysValues,
        positions: Int[Tensor, "#B Q *axes"],
        mask: Mask = Mask(),
    ) -> Float[Tensor, "B Q D4"]:
        """Let each query attend to the keys that the mask allows."""
        check_width(queries, self.w_q.in_features, "queries")
        return self._attend(self.w_q(queries), at, positions, mask)

    def self_attend(
        self,
        x: Float[Tensor, "B Q D"],
        cache: KeysValues | None,
        positions: Int[Tensor, "#B Q *axes"],
        mask: Mask = Mask(),
    ) -> tuple[Float[Tensor, "B Q D4"], KeysValues]:
        """Let a sequence attend to itself and to the cached tokens before it; return the output and the new cache."""
        check_width(x, self.w_q.in_features, "queries")
        q, k, v = ops.joint_linear(x, (self.w_q, self.w_k, self.w_v))
        here = self._cached(k, v, positions)
        cache = here if cache is None else cache.append(here)
        return self._attend(q, cache, positions, mask), cache

    def _cached(self, k: Tensor, v: Tensor, positions: Tensor) -> KeysValues:
        k = self.position.rotate(split_heads(k, self.n_heads), positions)
        return KeysValues(k, split_heads(v, self.n_heads), positions)

    def _attend(self, q: Tensor, at: KeysValues, positions: Tensor, mask: Mask) -> Tensor:
        q = self.position.rotate(split_heads(q, self.n_heads), positions)  # (B, H, Q, E)
        bias = self.attention.position_bias(self.position, q, at.k, at.v, positions, at.positions)
        dropout, drawn = self.attention.current_dropout(), []

        def weights() -> Tensor:
            drawn.append(F.dropout(self.attention.weights(q, at.k, mask, bias), dropout))
            return drawn[0]

        extra = self.position.pool(weights, positions, at.positions)
        # Values of keys and of distances are dropped together: one mask for both.
        mixed = drawn[0] @ at.v if drawn and dropout else self.attention(q, at.k, at.v, mask, bias)
        return self.w_o(merge_heads(mixed if extra is None else mixed + extra))

    def forward(
        self,
        queries: Float[Tensor, "B Q D"],
        keys: Float[Tensor, "B K D2"],
        values: Float[Tensor, "B K D3"],
        q_positions: Int[Tensor, "#B Q *axes"],
        k_positions: Int[Tensor, "#B K *axes"],
        mask: Mask = Mask(),
    ) -> Float[Tensor, "B Q D4"]:
        """Project keys and values, and attend to them."""
        return self.attend(queries, self.keys_values(keys, values, k_positions), q_positions, mask)


def check_width(x: Tensor, width: int, name: str) -> None:
    """Raise ValueError for inputs of another width than the projection was built for."""
    if x.shape[-1] != width:
        raise ValueError(f"{name} must be {width} wide, got {x.shape[-1]}")


def check_sizes(d_model: int, n_heads: int, *d_inputs: int) -> None:
    """Raise ValueError for sizes that no layer can have."""
    if n_heads < 1:
        raise ValueError(f"n_heads must be 1 or more, got {n_heads}")
    if d_model < 1 or d_model % n_heads:
        raise ValueError(f"d_model must be divisible by n_heads, got {d_model} and {n_heads}")
    if min(d_inputs) < 1:
        raise ValueError(f"d_query, d_key and d_value must be 1 or more, got {min(d_inputs)}")
