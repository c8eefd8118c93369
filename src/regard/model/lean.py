"""The Transformer with all that is not arithmetic taken out of its decoding step."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.batch import Batch, Source
from regard.mask import Mask
from regard.model.layers import Output
from regard.model.quantize import PACKED, quantize_linears
from regard.model.seq2seq import Seq2Seq, State
from regard.model.transformer import DecoderLayer, Transformer
from regard.position.contract import Codes

GROWTH = 32  # places by which the memory of written tokens grows


@dataclass(eq=False)
class LeanState(State):
    """Keys and values of each layer, with room for more tokens; a step writes into them, so a state is used once."""

    across: list[tuple[Tensor, Tensor]]  # (B, H, S, E) for each layer
    allowed: Bool[Tensor, "B 1 1 S"] | None
    back: list[Tensor]  # (room, 2, R, H, E) for each layer, tokens first: what is written lies together
    length: int
    n_hypotheses: int

    def reorder(self, rows: Int[Tensor, " R"]) -> "LeanState":
        back = [_taken(memory, rows, self.length) for memory in self.back]
        return LeanState(self.across, self.allowed, back, self.length, self.n_hypotheses)

    def keep(self, sentences: Int[Tensor, " M"]) -> "LeanState":
        rows = (sentences[:, None] * self.n_hypotheses + torch.arange(self.n_hypotheses)).flatten()
        across = [(k[sentences], v[sentences]) for k, v in self.across]
        allowed = None if self.allowed is None else self.allowed[sentences]
        back = [_taken(memory, rows, self.length) for memory in self.back]
        return LeanState(across, allowed, back, self.length, self.n_hypotheses)


class LeanLayer(nn.Module):
    """One decoder layer with its projections packed, queries, keys and values in one."""

    def __init__(self, layer: DecoderLayer, precision: str):
        super().__init__()
        pack = PACKED[precision]
        own, cross, feed = layer.attention, layer.cross_attention, layer.feed_forward
        maps = (own.w_q, own.w_k, own.w_v)
        self.qkv = pack(torch.cat([m.weight for m in maps]), torch.cat([m.bias for m in maps]))
        self.own_out = pack(own.w_o.weight, own.w_o.bias)
        self.cross_q = pack(cross.w_q.weight, cross.w_q.bias)
        self.cross_out = pack(cross.w_o.weight, cross.w_o.bias)
        self.inner, self.outer = (pack(m.weight, m.bias) for m in (feed.inner, feed.outer))
        self.activation = feed.activation
        self.norms = nn.ModuleList(
            [layer.after_attention.norm, layer.after_cross_attention.norm, layer.after_feed_forward.norm]
        )
        self.norm_first = layer.after_attention.norm_first
        self.n_heads, self.position = own.n_heads, own.position

    def forward(
        self,
        x: Float[Tensor, "R D"],
        across: tuple[Tensor, Tensor],
        allowed: Tensor | None,
        back: Float[Tensor, "room 2 R H E"],
        place: int,
    ) -> Float[Tensor, "R D"]:
        own, cross, feed = self.norms
        if self.norm_first:
            x = x + self._look_back(own(x), back, place)
            x = x + self._look_across(cross(x), across, allowed)
            return x + self.outer(self.activation(self.inner(feed(x))))
        x = own(x + self._look_back(x, back, place))
        x = cross(x + self._look_across(x, across, allowed))
        return feed(x + self.outer(self.activation(self.inner(x))))

    def _look_back(self, x: Tensor, back: Tensor, place: int) -> Tensor:
        R, D = x.shape
        q, k, v = self.qkv(x).view(R, 3, self.n_heads, 1, -1).unbind(1)  # (R, H, 1, E) each
        q, k = (self.position.rotate(turned, torch.tensor([[place]])) for turned in (q, k))
        back[place, 0], back[place, 1] = k[:, :, 0], v[:, :, 0]
        k, v = back[: place + 1].permute(1, 2, 3, 0, 4).unbind(0)  # (R, H, place + 1, E)
        return self.own_out(F.scaled_dot_product_attention(q, k, v).view(R, D))

    def _look_across(self, x: Tensor, across: tuple[Tensor, Tensor], allowed: Tensor | None) -> Tensor:
        k, v = across
        q = self.cross_q(x).view(len(k), -1, self.n_heads, k.shape[-1]).transpose(1, 2)  # hypotheses are queries
        mixed = F.scaled_dot_product_attention(q, k, v, allowed)
        return self.cross_out(mixed.transpose(1, 2).reshape(x.shape))


class LeanTransformer(Seq2Seq):
    """Decodes as the Transformer it was made of, in a third of the calls; it does not learn."""

    def __init__(self, model: Transformer, precision: str):
        super().__init__()
        self.model = model
        self.layers = nn.ModuleList([LeanLayer(layer, precision) for layer in model.decoder.layers])  # pyright: ignore
        self.last_norm = model.decoder.last_norm
        self.words = model.tgt.table.weight * model.tgt.table.embedding_dim**0.5
        self.to_logits = PACKED[precision](model.output.table.weight, None)
        self.output = Output(model.output.table)
        self.limit = model.limit
        self.codes = Codes(model.tgt.position, self.words)
        if precision == "int8":
            quantize_linears(model.encoder)

    def plain(self) -> Seq2Seq:
        return self.model

    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        return self.model.features(batch)

    def start(self, src: Source, n_hypotheses: int) -> LeanState:
        source = self.model.encode(src)
        across = [(seen.source.k, seen.source.v) for seen in self.model.decoder.project_source(source)]
        B, S = src.ids.shape
        allowed = _allowed(src.mask, S)
        H, E = across[0][0].shape[1], across[0][0].shape[3]
        back = [source.new_empty(GROWTH, 2, B * n_hypotheses, H, E) for _ in self.layers]
        return LeanState(across, allowed, back, 0, n_hypotheses)

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], LeanState]:
        assert isinstance(state, LeanState), f"a lean Transformer continues its own states, got {type(state)}"
        back = state.back if state.length < len(state.back[0]) else [_roomier(memory) for memory in state.back]
        x = self.words[tokens] + self.codes.at(state.length, state.length + 1)
        for layer, across, memory in zip(self.layers, state.across, back, strict=True):
            x = layer(x, across, state.allowed, memory, state.length)
        x = x if self.last_norm is None else self.last_norm(x)
        after = LeanState(state.across, state.allowed, back, state.length + 1, state.n_hypotheses)
        return self.to_logits(x), after


def _allowed(mask: Mask, S: int) -> Tensor | None:
    return mask.tile(range(1), range(S), torch.device("cpu"))


def _taken(memory: Tensor, rows: Tensor, length: int) -> Tensor:
    """Gives a memory of other rows; only what was written is copied."""
    room, _, _, H, E = memory.shape
    taken = memory.new_empty(room, 2, len(rows), H, E)
    torch.index_select(memory[:length], 2, rows, out=taken[:length])
    return taken


def _roomier(memory: Tensor) -> Tensor:
    return torch.cat([memory, torch.empty_like(memory[:GROWTH])])
