"""The layers of S8.1 over the same n × d input, each with the operations that it takes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from regard.attention import Attention, ScaledDot
from regard.build import build_heads
from regard.config import HeadsSettings

Call = Callable[[Float[Tensor, "B T D"]], Float[Tensor, "B T D"]]


class Mixing(nn.Module):
    """Attention without projections, by its definition: `softmax(x xᵀ / √d) x`, all weights written out."""

    def __init__(self, attention: Attention):
        super().__init__()
        self.attention = attention

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        head = x[:, None]
        return (self.attention.weights(head, head) @ head)[:, 0]


class Fused(nn.Module):
    """The same by the kernel that never writes the weights out."""

    def __init__(self, attention: Attention):
        super().__init__()
        self.attention = attention

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        head = x[:, None]
        return self.attention(head, head, head)[:, 0]


class SelfAttention(nn.Module):
    """The whole layer, with the projections of queries, keys, values and output; one head."""

    def __init__(self, d: int):
        super().__init__()
        self.heads = build_heads(HeadsSettings(d_model=d, n_heads=1, bias=False))

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        heads = self.heads
        q, k, v = (projection(x)[:, None] for projection in (heads.w_q, heads.w_k, heads.w_v))
        return heads.w_o((heads.attention.weights(q, k) @ v)[:, 0])


class Recurrence(nn.Module):
    """PyTorch's GRU."""

    def __init__(self, d: int):
        super().__init__()
        self.gru = nn.GRU(d, d, batch_first=True, bias=False)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.gru(x)[0]


class Convolution(nn.Module):
    """A convolution over the place itself and the k − 1 before it."""

    def __init__(self, d: int, k: int):
        super().__init__()
        self.k = k
        self.convolution = nn.Conv1d(d, d, k, bias=False)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.convolution(F.pad(x.mT, (self.k - 1, 0))).mT


@dataclass(frozen=True)
class Law:
    """What theory says of a layer: operations of one pass, and the exponents of n and of d in them."""

    make: Callable[[int, int], nn.Module]  # from d and k
    operations: Callable[[int, int, int], int]  # from n, d and k; two for each multiplication with its addition
    formula: str
    by_n: float | None  # None where two terms compete, and the exponent lies between theirs
    by_d: float | None
    steps: str
    path: str


LAYERS: dict[str, Law] = {
    "attention": Law(
        make=lambda d, k: Mixing(ScaledDot()),
        operations=lambda n, d, k: 4 * n * n * d,
        formula="n²d",
        by_n=2.0,
        by_d=1.0,
        steps="1",
        path="1",
    ),
    "recurrence": Law(
        make=lambda d, k: Recurrence(d),
        operations=lambda n, d, k: 12 * n * d * d,
        formula="nd²",
        by_n=1.0,
        by_d=2.0,
        steps="n",
        path="n",
    ),
    "convolution": Law(
        make=Convolution,
        operations=lambda n, d, k: 2 * k * n * d * d,
        formula="knd²",
        by_n=1.0,
        by_d=2.0,
        steps="1",
        path="n/k",
    ),
    "attention, fused": Law(
        make=lambda d, k: Fused(ScaledDot()),
        operations=lambda n, d, k: 4 * n * n * d,
        formula="n²d",
        by_n=2.0,
        by_d=1.0,
        steps="1",
        path="1",
    ),
    "attention with projections": Law(
        make=lambda d, k: SelfAttention(d),
        operations=lambda n, d, k: 4 * n * n * d + 8 * n * d * d,
        formula="n²d + nd²",
        by_n=None,
        by_d=None,
        steps="1",
        path="1",
    ),
}


def count(layer: nn.Module, n: int, d: int) -> int:
    """Counts the operations of one pass over one sequence, as PyTorch sees them go by; nothing is computed."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer.to("meta")(torch.empty(1, n, d, device="meta"))
    return counter.get_total_flops()
