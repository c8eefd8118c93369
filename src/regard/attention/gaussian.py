"""Attention by a Gaussian kernel: Nadaraya–Watson regression."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.contract import Attention, check, same_width
from regard.attention.fused import fused_attention, prepare
from regard.config import choose
from regard.mask import Mask

# float16 ends at 65504 and ‖k‖²/2 need not; a power of two costs no digits.
UNIT = 256.0
LEARNED = {"fixed": False, "learned": True}


class Gaussian(Attention):
    """Scores by `−‖(q − k) w‖² / 2` with one w for each head (Nadaraya 1964, Watson 1964; S1.2 and S1.3).

    `−‖q − k‖²/2 = q·k − ‖k‖²/2 − ‖q‖²/2`, and the last term is the same for all keys of a row, so the softmax cancels
    it. The fast path therefore is a dot product with `‖k‖²/2` in a few extra columns: Θ(QKE) time, linear memory.
    """

    def __init__(self, n_heads: int = 1, bandwidth: str = "learned", dropout: float = 0.0):
        super().__init__(dropout)
        learned = choose(LEARNED, bandwidth, "bandwidth")
        self.w: Float[Tensor, " H"] = nn.Parameter(torch.ones(n_heads), requires_grad=learned)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        same_width(q, k, "the Gaussian kernel")
        q, k = self._scaled(q), self._scaled(k)
        squares = (q[:, :, :, None] - k[:, :, None]).square()  # (B, H, Q, K, E): the definition, not the way it is run
        return -squares.sum(dim=-1) / 2

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask = Mask(),
        bias: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        check(q, k, v, mask, bias)
        same_width(q, k, "the Gaussian kernel")
        features = self.key_features(k) if features is None else features
        return fused_attention(self._query_features(q, k), features, v, mask, bias, 1.0, self.dropout_now())

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = Mask(), bias: Tensor | None = None) -> str:
        check(q, k, v, mask, bias)
        same_width(q, k, "the Gaussian kernel")
        q, k = self._query_features(q, k), self.key_features(k)
        return prepare(q, k, v, mask, bias).kernel(self.dropout_now(), 1.0)

    def _scaled(self, x: Tensor) -> Tensor:
        if len(self.w) not in {1, x.shape[1]}:
            raise ValueError(f"this attention was built for {len(self.w)} heads, got {x.shape[1]}")
        return x * self.w.to(x.dtype)[:, None, None]

    def key_features(self, k: Tensor) -> Tensor:
        """Gives k′, which with the queries' q′ has `q′·k′ = q·k − ‖k‖²/2`; kernels like widths divisible by eight.

        ‖k‖² is larger than the differences that matter, so in bfloat16 one column would round them away. Three columns
        (the rounded value, what is left, what is left then) carry it to the precision of float32.
        """
        exact = torch.promote_types(k.dtype, torch.float32)
        k = self._scaled(self._seen_from_the_first(k, k))
        rest = -k.to(exact).square().sum(dim=-1, keepdim=True) / 2
        columns = []
        for _ in range(3):
            columns.append((rest / UNIT).to(k.dtype))
            rest = rest - UNIT * columns[-1].to(exact)
        return F.pad(torch.cat([k, *columns], -1), (0, 5))

    def _query_features(self, q: Tensor, k: Tensor) -> Tensor:
        q = self._scaled(self._seen_from_the_first(q, k))
        units = torch.full_like(q[..., :1], UNIT).expand(*q.shape[:-1], 3)
        return F.pad(torch.cat([q, units], -1), (0, 5))

    def _seen_from_the_first(self, x: Tensor, k: Tensor) -> Tensor:
        """Only q − k counts: seen from the first key, data far from 0 (years, say) keep their digits.

        bfloat16 has so few of them that rounding the differences would cost more than it saves.
        """
        return x if k.dtype == torch.bfloat16 or k.shape[2] == 0 else x - k[:, :, :1].detach()
