"""The Transformer's decoding step over a fixed number of slots for sentences: no tensor changes its shape or address.

On a GPU a step is then one captured graph. Each sentence in its slot has its own length, so a new one may begin in the
slot of one that is done. A hypothesis that continues another takes over its list of origins instead of its keys and
values: a token's are looked up where they were first written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Source, sequence_mask
from regard.model.norm import LayerNorm
from regard.model.seq2seq import allowed_log_probs, top_k
from regard.model.transformer import DecoderLayer, Transformer
from regard.ops import triton_kernels, usable
from regard.padding import EOS
from regard.position.contract import PositionTable
from regard.shapes import Float, Int

FEW = 8  # rows up to which our own product is used


@dataclass(frozen=True, eq=False)
class Slots:
    """What the decoder remembers of B sentences with N hypotheses each: space for S source and T target tokens."""

    cross_cache: Float[Tensor, "B S L 2 D"]  # keys and values of the source, for each layer
    src_lengths: Int[Tensor, " B"]
    self_cache: Float[Tensor, "L 2 B T N D"]  # keys and values of the target, where each token was written
    origins: Int[Tensor, "B N T"]  # the hypothesis in whose row each token of a hypothesis was written
    lengths: Int[Tensor, " B"]  # tokens written

    @property
    def n_hypotheses(self) -> int:
        return self.origins.shape[1]

    def begin(
        self, slots: Int[Tensor, " M"], cross_cache: Float[Tensor, "M S2 L 2 D"], src_lengths: Int[Tensor, " M"]
    ) -> None:
        """Let sentences begin in some slots, whatever was there before."""
        self.cross_cache[slots, : cross_cache.shape[1]] = cross_cache
        self.src_lengths[slots] = src_lengths.to(self.src_lengths.dtype)
        self.lengths[slots] = 0
        self.origins[slots, :, 0] = torch.arange(self.n_hypotheses, dtype=torch.int32, device=slots.device)

    def advance(self, parents: Int[Tensor, "B N"], writes: Int[Tensor, " B"]) -> None:
        """Let hypotheses continue others of their sentence; `writes` has 1 for a sentence that goes on, else 0."""
        B, N, T = self.origins.shape
        self.origins.copy_(self.origins.gather(1, parents[:, :, None].expand(B, N, T)))
        self.lengths.add_(writes)
        own = torch.arange(N, dtype=torch.int32, device=parents.device).expand(B, N)
        self.origins.scatter_(2, self.lengths.long()[:, None, None].expand(B, N, 1), own[:, :, None])


class SlotLayer(nn.Module):
    """One decoder layer with its projections joined, queries, keys and values in one."""

    def __init__(self, layer: DecoderLayer):
        super().__init__()
        own, cross, feed = layer.attention, layer.cross_attention, layer.feed_forward
        maps = (own.w_q, own.w_k, own.w_v)
        self.qkv_weight, self.qkv_bias = join_linears(maps)
        self.own_out, self.cross_q, self.cross_out = own.w_o, cross.w_q, cross.w_o
        self.inner, self.outer = feed.inner, feed.outer
        self.activation = feed.activation
        self.norms: list[Any] = [
            layer.after_attention.norm,
            layer.after_cross_attention.norm,
            layer.after_feed_forward.norm,
        ]
        self.norm_first = layer.after_attention.norm_first
        self.n_heads = own.n_heads

    def forward(
        self, x: Float[Tensor, "R D"], update: Float[Tensor, "R D"] | None, slots: Slots, layer: int
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R D"] | None]:
        """Take the stream and what is still to be added to it, since a sum and a norm are one call; return both."""
        own, cross, feed = self.norms
        if self.norm_first:
            x, h = add_norm(x, update, own)
            x, h = add_norm(x, self._self_attend(h, slots, layer), cross)
            x, h = add_norm(x, self._cross_attend(h, slots, layer), feed)
            return x, self._feed_forward(h)
        _, x = add_norm(x, self._self_attend(x, slots, layer), own)
        _, x = add_norm(x, self._cross_attend(x, slots, layer), cross)
        return add_norm(x, self._feed_forward(x), feed)[1], None

    def _self_attend(self, x: Tensor, slots: Slots, layer: int) -> Tensor:
        qkv = linear(x, self.qkv_weight, self.qkv_bias)
        pooled = self_attention(qkv, slots.self_cache[layer], slots.origins, slots.lengths, self.n_heads)
        return linear(pooled, self.own_out.weight, self.own_out.bias)

    def _cross_attend(self, x: Tensor, slots: Slots, layer: int) -> Tensor:
        q = linear(x, self.cross_q.weight, self.cross_q.bias)
        pooled = cross_attention(q, slots.cross_cache[:, :, layer], slots.src_lengths, self.n_heads)
        return linear(pooled, self.cross_out.weight, self.cross_out.bias)

    def _feed_forward(self, x: Tensor) -> Tensor:
        relu = self.activation is F.relu
        x = linear(x, self.inner.weight, self.inner.bias, relu)
        return linear(x if relu else self.activation(x), self.outer.weight, self.outer.bias)


class SlotDecoder:
    """Decodes as the Transformer it was made of, many sentences side by side; it does not learn."""

    min_token = EOS  # smaller ones are never written

    def __init__(self, model: Transformer):
        self.model = model.eval()
        layers: list[Any] = list(model.decoder.layers)
        self.layers = [SlotLayer(layer) for layer in layers]
        self.last_norm = model.decoder.last_norm
        self.embeddings = model.tgt.table.weight.detach() * model.tgt.scale
        self.embedding_norm = model.tgt.norm
        self.output, self.output_bias = model.output.table.weight.detach(), model.output.bias
        self.limit = model.limit
        self.positions = PositionTable(model.tgt.position, self.embeddings)
        cross = [layer.cross_attention for layer in layers]
        self.cross_weight, self.cross_bias = join_linears([m for each in cross for m in (each.w_k, each.w_v)])

    @property
    def device(self) -> torch.device:
        return self.output.device

    def make_slots(self, B: int, N: int, S: int, T: int) -> Slots:
        """Return empty slots."""
        L, D, like = len(self.layers), self.output.shape[1], self.output
        integer = {"dtype": torch.int32, "device": like.device}
        return Slots(
            like.new_zeros(B, S, L, 2, D),
            torch.zeros(B, **integer),
            like.new_zeros(L, 2, B, T, N, D),
            torch.zeros(B, N, T, **integer),
            torch.zeros(B, **integer),
        )

    def encode(self, src: Source) -> Float[Tensor, "M S L 2 D"]:
        """Return the keys and values of sources for all layers, by one product."""
        projected = F.linear(self.model.encode(src), self.cross_weight, self.cross_bias)
        return projected.unflatten(2, (len(self.layers), 2, -1))

    def step(
        self, tokens: Int[Tensor, "B N"], slots: Slots, codes: Float[Tensor, "T D"], k: int
    ) -> tuple[Float[Tensor, "R k"], Int[Tensor, "R k"]]:
        """Read one token for each hypothesis, and return the k most probable next ones with their log-probabilities."""
        x, update = (self.embeddings[tokens] + codes[slots.lengths.long()][:, None]).flatten(0, 1), None
        x = x if self.embedding_norm is None else self.embedding_norm(x)
        for number, layer in enumerate(self.layers):
            x, update = layer(x, update, slots, number)
        if self.last_norm is not None:
            _, x = add_norm(x, update, self.last_norm)
        return best_tokens(linear(x, self.output, self.output_bias), k, self.min_token)


@torch.no_grad()
def join_linears(maps: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Return the weights and biases of several maps of one input as those of one."""
    return torch.cat([each.weight for each in maps]), torch.cat([each.bias for each in maps])


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool = False) -> Tensor:
    """Return `x Wᵀ + b`, or its ReLU."""
    if x.is_cuda and len(x) <= FEW and (kernel := triton_kernels().linear).skinny_gemm_fits(x):
        return kernel.skinny_gemm(x, weight, bias, relu)
    if x.is_cuda and relu and bias is not None:
        return torch._addmm_activation(bias, x, weight.T)  # pyright: ignore[reportPrivateImportUsage]
    x = F.linear(x, weight, bias)
    return x.relu_() if relu else x


def add_norm(x: Tensor, update: Tensor | None, norm: Any) -> tuple[Tensor, Tensor]:
    """Return `x + update` and its norm."""
    if usable(x):
        eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
        bias = norm.bias if isinstance(norm, LayerNorm) else None
        return triton_kernels().norm.add_norm_decode(x, update, norm.weight, bias, eps)
    total = x if update is None else x + update
    return total, norm(total)


def self_attention(
    qkv: Float[Tensor, "R D3"],
    cache: Float[Tensor, "2 B T N D"],
    origins: Int[Tensor, "B N T"],
    lengths: Int[Tensor, " B"],
    n_heads: int,
) -> Float[Tensor, "R D"]:
    """Store the new keys and values, and let each query attend to its own and to those of its origins."""
    if usable(qkv):
        out = torch.empty_like(qkv[:, : cache.shape[-1]])
        return triton_kernels().decode.self_attention_decode(qkv, cache, origins, lengths, n_heads, out)
    _, B, T, N, D = cache.shape
    q, *new = qkv.view(B, N, 3, D).unbind(2)
    sentences = torch.arange(B, device=qkv.device)
    for stored, x in zip(cache, new, strict=True):
        stored[sentences, lengths.long()] = x
    positions = torch.arange(T, device=qkv.device)
    at = (sentences[:, None, None], positions, origins.long().clamp(0, N - 1))
    keys, values = (stored[at].unflatten(3, (n_heads, -1)) for stored in cache)  # (B, N, T, H, E)
    scores = torch.einsum("bnhe,bnthe->bnht", q.unflatten(2, (n_heads, -1)), keys) * (D // n_heads) ** -0.5
    written = positions <= lengths[:, None]
    weights = scores.masked_fill(~written[:, None, None], -torch.inf).softmax(-1)
    return torch.einsum("bnht,bnthe->bnhe", weights, values).reshape(B * N, D)


def cross_attention(
    q: Float[Tensor, "R D"], cache: Float[Tensor, "B S 2 D"], lengths: Int[Tensor, " B"], n_heads: int
) -> Float[Tensor, "R D"]:
    """Let the hypotheses of each sentence attend to its source."""
    keys, values = cache.unbind(2)
    if usable(q):
        out = torch.empty_like(q)
        return triton_kernels().decode.cross_attention_decode(q, keys, values, lengths, n_heads, out)
    B, S, D = keys.shape
    heads = [x.unflatten(2, (n_heads, -1)).transpose(1, 2) for x in (q.view(B, -1, D), keys, values)]
    real = sequence_mask(lengths, S)
    mixed = F.scaled_dot_product_attention(*heads, attn_mask=real[:, None, None]).nan_to_num(0.0)
    return mixed.transpose(1, 2).reshape(q.shape)


def best_tokens(
    logits: Float[Tensor, "R V"], k: int, min_token: int
) -> tuple[Float[Tensor, "R k"], Int[Tensor, "R k"]]:
    """Return the k most probable tokens that may follow, with their log-probabilities."""
    if usable(logits):
        return triton_kernels().decode.topk(logits, k, min_token)
    allowed = allowed_log_probs(logits, None)
    allowed[:, :min_token] = -torch.inf
    return top_k(allowed, k)
