"""The Transformer's decoding step over a fixed number of places for sentences: no tensor changes its shape or address.

On a GPU a step is then one captured graph. Each sentence in its slot has its own age, so a new one may begin in the
place of one that is done. A hypothesis that continues another takes over its list of ancestors instead of its keys
and values: a token's are looked up where they were first written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.batch import Batch, Source
from regard.model.layers import Output
from regard.model.norm import LayerNorm
from regard.model.seq2seq import Choices, Seq2Seq, State, log_probs
from regard.model.transformer import DecoderLayer, Transformer
from regard.padding import EOS
from regard.position.contract import Codes

FEW = 8  # rows up to which our own product is used


@dataclass(frozen=True, eq=False)
class Slots:
    """What the decoder remembers of B sentences with N hypotheses each: room for S source and T target tokens."""

    across: Float[Tensor, "B S L 2 D"]  # keys and values of the source, for each layer
    lengths: Int[Tensor, " B"]  # real source tokens
    back: Float[Tensor, "L 2 B T N D"]  # keys and values of what was written, where it was written
    ancestors: Int[Tensor, "B N T"]  # the hypothesis in whose place each token of a hypothesis was written
    ages: Int[Tensor, " B"]  # tokens written

    @property
    def n_hypotheses(self) -> int:
        """Gives N."""
        return self.ancestors.shape[1]

    def begin(self, places: Int[Tensor, " M"], across: Float[Tensor, "M S2 L 2 D"], lengths: Int[Tensor, " M"]) -> None:
        """Lets sentences begin in some places, whatever was there before."""
        self.across[places, : across.shape[1]] = across
        self.lengths[places] = lengths.to(self.lengths.dtype)
        self.ages[places] = 0
        self.ancestors[places, :, 0] = torch.arange(self.n_hypotheses, dtype=torch.int32, device=places.device)

    def go_on(self, parents: Int[Tensor, "B N"], writes: Int[Tensor, " B"]) -> None:
        """Lets hypotheses continue others of their sentence; `writes` has 1 for a sentence that goes on, else 0."""
        B, N, T = self.ancestors.shape
        self.ancestors.copy_(self.ancestors.gather(1, parents[:, :, None].expand(B, N, T)))
        self.ages.add_(writes)
        own = torch.arange(N, dtype=torch.int32, device=parents.device).expand(B, N)
        self.ancestors.scatter_(2, self.ages.long()[:, None, None].expand(B, N, 1), own[:, :, None])


class SlottedLayer(nn.Module):
    """One decoder layer with its projections joined, queries, keys and values in one."""

    def __init__(self, layer: DecoderLayer):
        super().__init__()
        own, cross, feed = layer.attention, layer.cross_attention, layer.feed_forward
        maps = (own.w_q, own.w_k, own.w_v)
        self.qkv_weight, self.qkv_bias = joint(maps)
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
        self, x: Float[Tensor, "R D"], update: Float[Tensor, "R D"] | None, slots: Slots, place: int
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R D"] | None]:
        """Takes the stream and what is still to be added to it, since a sum and a norm are one call; gives both."""
        own, cross, feed = self.norms
        if self.norm_first:
            x, h = joined(x, update, own)
            x, h = joined(x, self._look_back(h, slots, place), cross)
            x, h = joined(x, self._look_across(h, slots, place), feed)
            return x, self._feed(h)
        _, x = joined(x, self._look_back(x, slots, place), own)
        _, x = joined(x, self._look_across(x, slots, place), cross)
        return joined(x, self._feed(x), feed)[1], None

    def _look_back(self, x: Tensor, slots: Slots, place: int) -> Tensor:
        qkv = product(x, self.qkv_weight, self.qkv_bias)
        mixed = look_back(qkv, slots.back[place], slots.ancestors, slots.ages, self.n_heads)
        return product(mixed, self.own_out.weight, self.own_out.bias)

    def _look_across(self, x: Tensor, slots: Slots, place: int) -> Tensor:
        keys, values = slots.across[:, :, place].unbind(2)
        q = product(x, self.cross_q.weight, self.cross_q.bias)
        mixed = look_across(q, keys, values, slots.lengths, self.n_heads)
        return product(mixed, self.cross_out.weight, self.cross_out.bias)

    def _feed(self, x: Tensor) -> Tensor:
        rectified = self.activation is F.relu
        x = product(x, self.inner.weight, self.inner.bias, rectified)
        return product(x if rectified else self.activation(x), self.outer.weight, self.outer.bias)


class SlottedTransformer(Seq2Seq):
    """Decodes as the Transformer it was made of, many sentences side by side; it does not learn."""

    least = EOS  # smaller tokens are never said

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model
        self.layers = [SlottedLayer(layer) for layer in model.decoder.layers]  # pyright: ignore[reportArgumentType]
        self.last_norm = model.decoder.last_norm
        self.words = model.tgt.table.weight.detach() * model.tgt.table.embedding_dim**0.5
        self.output = Output(model.output.table)
        self.vocabulary = model.output.table.weight.detach()
        self.limit = model.limit
        self.codes = Codes(model.tgt.position, self.words)
        layers: list[Any] = list(model.decoder.layers)
        maps = [m for layer in layers for m in (layer.cross_attention.w_k, layer.cross_attention.w_v)]
        self.conveyors: dict[Any, Any] = {}  # what was made to decode with it, by size
        self.across_weight, self.across_bias = joint(maps)

    def plain(self) -> Seq2Seq:
        return self.model

    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        return self.model.features(batch)

    def start(self, src: Source, n_hypotheses: int) -> State:
        return self.model.start(src, n_hypotheses)

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        return self.model.step(tokens, state)

    def make_slots(self, B: int, N: int, S: int, T: int) -> Slots:
        """Makes room, with nothing in it."""
        L, D, like = len(self.layers), self.words.shape[1], self.words
        whole = {"dtype": torch.int32, "device": like.device}
        return Slots(
            like.new_zeros(B, S, L, 2, D),
            torch.zeros(B, **whole),
            like.new_zeros(L, 2, B, T, N, D),
            torch.zeros(B, N, T, **whole),
            torch.zeros(B, **whole),
        )

    def read(self, src: Source) -> Float[Tensor, "M S L 2 D"]:
        """Gives the keys and values of sources for all layers, by one product."""
        seen = F.linear(self.model.encode(src), self.across_weight, self.across_bias)
        return seen.unflatten(2, (len(self.layers), 2, -1))

    def say(self, tokens: Int[Tensor, "B N"], slots: Slots, codes: Float[Tensor, "T D"], k: int) -> Choices:
        """Reads one token for each hypothesis, remembers it, and gives the k likeliest that may follow."""
        x, update = (self.words[tokens] + codes[slots.ages.long()][:, None]).flatten(0, 1), None
        for place, layer in enumerate(self.layers):
            x, update = layer(x, update, slots, place)
        if self.last_norm is not None:
            _, x = joined(x, update, self.last_norm)
        return likeliest_tokens(product(x, self.vocabulary, None), k, self.least)


@torch.no_grad()
def joint(maps: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Gives the weights and biases of several maps of one input as those of one."""
    return torch.cat([each.weight for each in maps]), torch.cat([each.bias for each in maps])


def product(x: Tensor, weight: Tensor, bias: Tensor | None, rectified: bool = False) -> Tensor:
    """Gives `x Wᵀ + b`, or its ReLU."""
    if x.is_cuda and len(x) <= FEW:
        from regard.kernels.linear import few_rows, fits  # only on a GPU is Triton installed

        if fits(x):
            return few_rows(x, weight, bias, rectified)
    if x.is_cuda and rectified and bias is not None:
        return torch._addmm_activation(bias, x, weight.T)  # pyright: ignore[reportPrivateImportUsage]
    x = F.linear(x, weight, bias)
    return x.relu_() if rectified else x


def joined(x: Tensor, update: Tensor | None, norm: Any) -> tuple[Tensor, Tensor]:
    """Gives `x + update` and its norm."""
    if x.is_cuda and x.dtype.itemsize <= 4:
        from regard.kernels.norm import join_norm  # only on a GPU is Triton installed

        eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
        return join_norm(x, update, norm.weight, norm.bias if isinstance(norm, LayerNorm) else None, eps)
    total = x if update is None else x + update
    return total, norm(total)


def look_back(
    qkv: Float[Tensor, "R D3"],
    memory: Float[Tensor, "2 B T N D"],
    ancestors: Int[Tensor, "B N T"],
    ages: Int[Tensor, " B"],
    n_heads: int,
) -> Float[Tensor, "R D"]:
    """Remembers the new keys and values, and lets each query look at its own and at those of its ancestors."""
    if qkv.is_cuda and qkv.dtype.itemsize <= 4:
        from regard.kernels import decode as kernel

        return kernel.look_back(qkv, memory, ancestors, ages, n_heads, torch.empty_like(qkv[:, : memory.shape[-1]]))
    _, B, T, N, D = memory.shape
    q, *new = qkv.view(B, N, 3, D).unbind(2)
    sentences = torch.arange(B, device=qkv.device)
    for kept, x in zip(memory, new, strict=True):
        kept[sentences, ages.long()] = x
    places = torch.arange(T, device=qkv.device)
    at = (sentences[:, None, None], places, ancestors.long().clamp(0, N - 1))
    keys, values = (kept[at].unflatten(3, (n_heads, -1)) for kept in memory)  # (B, N, T, H, E)
    scores = torch.einsum("bnhe,bnthe->bnht", q.unflatten(2, (n_heads, -1)), keys) * (D // n_heads) ** -0.5
    written = places <= ages[:, None]
    weights = scores.masked_fill(~written[:, None, None], -torch.inf).softmax(-1)
    return torch.einsum("bnht,bnthe->bnhe", weights, values).reshape(B * N, D)


def look_across(
    q: Float[Tensor, "R D"],
    keys: Float[Tensor, "B S D"],
    values: Float[Tensor, "B S D"],
    lengths: Int[Tensor, " B"],
    n_heads: int,
) -> Float[Tensor, "R D"]:
    """Lets the hypotheses of each sentence look at its source."""
    if q.is_cuda and q.dtype.itemsize <= 4:
        from regard.kernels import decode as kernel

        return kernel.look_across(q, keys, values, lengths, n_heads, torch.empty_like(q))
    B, S, D = keys.shape
    heads = [x.unflatten(2, (n_heads, -1)).transpose(1, 2) for x in (q.view(B, -1, D), keys, values)]
    real = torch.arange(S, device=q.device) < lengths[:, None]
    mixed = F.scaled_dot_product_attention(*heads, attn_mask=real[:, None, None]).nan_to_num(0.0)
    return mixed.transpose(1, 2).reshape(q.shape)


def likeliest_tokens(logits: Float[Tensor, "R V"], k: int, least: int) -> Choices:
    """Gives the k likeliest tokens that are not below `least`."""
    if logits.is_cuda and logits.dtype.itemsize <= 4:
        from regard.kernels import decode as kernel

        return Choices(*kernel.likeliest_tokens(logits, k, least))
    said = log_probs(logits, None)
    said[:, :least] = -torch.inf
    return Choices(*said.topk(min(k, said.shape[1])))
