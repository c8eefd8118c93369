"""Linear, dropout, embedding, feed-forward."""

import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import choose
from regard.position import Position


def is_sharded(tensor: Tensor) -> bool:
    """Tells whether a tensor is a DTensor; where nobody has loaded that module, which takes half a second, none is."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


class Linear(nn.Linear):
    """`x Wᵀ + b` with PyTorch's parameters; on a GPU with a quicker backward pass."""

    def forward(self, input: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D2"]:
        return _product(input, self.weight, self.bias)


def joint(x: Float[Tensor, "*B D"], maps: Sequence[Any]) -> tuple[Tensor, ...]:
    """Applies several maps to one input; on a GPU, where every call costs, as one map whose outputs are cut apart."""
    biases = [each.bias for each in maps if each.bias is not None]
    if not x.is_cuda or is_sharded(maps[0].weight) or len(biases) not in {0, len(maps)}:
        return tuple(each(x) for each in maps)
    weight, sizes = torch.cat([each.weight for each in maps]), [each.out_features for each in maps]
    if not (biases and is_learning(x)):
        return F.linear(x, weight, torch.cat(biases) if biases else None).split(sizes, dim=-1)
    from regard.kernels.linear import joint_linear  # only there is Triton installed

    return joint_linear(x, weight, torch.cat(biases), sizes)


def is_learning(x: Tensor) -> bool:
    """Tells whether our own kernels take this call: on a GPU, where there will be a backward pass."""
    return x.is_cuda and x.dtype.itemsize <= 4 and torch.is_grad_enabled()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None or not is_learning(x) or is_sharded(weight):
        return F.linear(x, weight, bias)
    from regard.kernels.linear import linear  # only there is Triton installed

    return linear(x, weight, bias)


LEVELS = 2**16


class Dropout(nn.Module):
    """Zeroes a share `rate` of the features while training and scales the others up (Srivastava et al. 2014).

    PyTorch's own draws one random number for each feature; on a CPU, which draws them one after another, that costs as
    much as a small matrix product. Here 16 random bits decide, a quarter of a drawn number, so that the share is exact
    to 1 in 65536. On other devices PyTorch's own is used.
    """

    def __init__(self, rate: float):
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"dropout must lie in [0, 1), got {rate}")
        self.rate = rate

    def current_rate(self) -> float:
        """Gives the share to drop in this call: none outside training."""
        return self.rate if self.training else 0.0

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if self.current_rate() == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.rate)
        return x * drawn(x, self.rate)


def drawn(x: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Draws 0 with the chance `rate`, else the factor that keeps the mean."""
    n = x.numel()
    words = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[:n].view(x.shape)
    below = round(rate * LEVELS)
    return (bits >= below - LEVELS // 2) * torch.tensor(LEVELS / (LEVELS - below), dtype=x.dtype)


ACTIVATION = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class FeedForward(nn.Module):
    """`W_2 activation(W_1 x)`, each token by itself (arXiv:1706.03762, 3.3). 2 D F parameters."""

    def __init__(self, d_model: int, d_ff: int, activation: str, dropout: float):
        super().__init__()
        self.activation = choose(ACTIVATION, activation, "activation")
        self.inner = Linear(d_model, d_ff)
        self.outer = Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)
        for layer in (self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        inner, outer = self.inner, self.outer
        if self.activation is F.relu and self.training and is_learning(x) and not is_sharded(inner.weight):
            from regard.kernels.linear import feed_forward  # only there is Triton installed

            return feed_forward(x, inner.weight, inner.bias, outer.weight, outer.bias, self.dropout.rate)
        return outer(self.dropout(self.activation(inner(x))))


class FactoredTable(nn.Module):
    """`table = C Uᵀ`: a short code for each token, and one map from codes to vectors (arXiv:1909.11942).

    V E + E D parameters instead of V D. It is used as a table is: rows are looked up, and `weight` is all of it.
    """

    def __init__(self, vocab_size: int, d_embedding: int, width: int, pad_id: int):
        super().__init__()
        self.num_embeddings, self.embedding_dim = vocab_size, width
        self.codes = nn.Embedding(vocab_size, d_embedding, padding_idx=pad_id)
        self.up = nn.Linear(d_embedding, width, bias=False)
        nn.init.normal_(self.up.weight, std=(d_embedding * width) ** -0.5)  # so that scaled vectors have variance 1

    @property
    def weight(self) -> Float[Tensor, "V D"]:
        """Gives the whole table."""
        return self.up(self.codes.weight)

    def forward(self, ids: Int[Tensor, "*B"]) -> Float[Tensor, "*B D"]:
        return F.linear(self.codes(ids), self.up.weight)


class Embedding(nn.Module):
    """`√D · table[ids]`, joined with positions, dropped out while training (arXiv:1706.03762, 3.4 and 3.5)."""

    def __init__(self, table: nn.Embedding | FactoredTable, position: Position, dropout: float):
        super().__init__()
        self.table = table
        self.position = position
        self.dropout = Dropout(dropout)

    def forward(self, ids: Int[Tensor, "B T"], positions: Int[Tensor, "#B T *axes"]) -> Float[Tensor, "B T D"]:
        vectors = self.table(ids) * self.table.embedding_dim**0.5
        return self.dropout(self.position.embed(vectors, positions))


def make_table(vocab_size: int, width: int, pad_id: int) -> nn.Embedding:
    """Makes a table whose scaled vectors have variance 1; padding has none."""
    table = nn.Embedding(vocab_size, width, padding_idx=pad_id)
    nn.init.normal_(table.weight, std=width**-0.5)
    table.weight.data[pad_id].zero_()
    return table


class Output(nn.Module):
    """Vectors become logits: a linear map without bias, which may share the table of the tokens."""

    def __init__(self, table: nn.Embedding | FactoredTable):
        super().__init__()
        self.table = table

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        return F.linear(x, self.table.weight)
