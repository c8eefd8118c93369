"""The recurrent model: a GRU encoder and a GRU decoder with attention."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import ops
from regard.attention import Additive, Attention
from regard.batch import Batch, Source
from regard.config import choose
from regard.mask import Mask, allow
from regard.model.layers import Dropout, Embedding, Linear, Output
from regard.model.seq2seq import Seq2Seq, State, hypothesis_rows
from regard.shapes import Float, Int


class GateNorm(nn.Module):
    """Layer normalisation of one projection of a GRU: r and z together, n alone (Ba et al. 2016, arXiv:1607.06450).

    With x the input and h the state, in the order of PyTorch's gates,

        r, z = σ(LN(W_rz x) + LN(U_rz h))
        n    = tanh(LN(W_n x) + r LN(U_n h))
        h'   = z h + (1 − z) n

    where LN(a) = α (a − mean a) / √(var a + ε) + β over the features of a. Each of the four has its own gain α and
    bias β; the biases are those of the cell, which shift a plain GRU too.
    """

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3 * width))
        self.sizes = (2 * width, width)
        self.eps = eps

    def forward(self, projected: Float[Tensor, "*B D3"], bias: Float[Tensor, " D3"]) -> Float[Tensor, "*B D3"]:
        parts = zip(*(each.split(self.sizes, dim=-1) for each in (projected, self.weight, bias)), strict=True)
        return torch.cat([ops.layer_norm(part, gain, shift, self.eps) for part, gain, shift in parts], dim=-1)


class NormalisedGRU(nn.Module):
    """A GRU with `GateNorm` around both projections, step by step; called as `nn.GRU` with `batch_first`."""

    def __init__(self, d_input: int, width: int):
        super().__init__()
        self.cell = nn.GRUCell(d_input, width)  # holds the parameters, and is never called
        self.input_norm = GateNorm(width)
        self.state_norm = GateNorm(width)

    def forward(self, x: Float[Tensor, "B S D"]) -> tuple[Float[Tensor, "B S D2"], Float[Tensor, "1 B D2"]]:
        cell = self.cell
        of_inputs = self.input_norm(F.linear(x, cell.weight_ih), cell.bias_ih)
        hidden, states = of_inputs.new_zeros(len(x), cell.hidden_size), []
        for of_input in of_inputs.unbind(1):
            of_state = self.state_norm(F.linear(hidden, cell.weight_hh), cell.bias_hh)
            hidden = ops.gru_gates(of_input, of_state, hidden)
            states.append(hidden)
        return torch.stack(states, dim=1), hidden[None]


def _plain_gru(d_input: int, width: int) -> nn.GRU:
    return nn.GRU(d_input, width, batch_first=True)


# The GRUs of an encoder, by the norm of their states.
GRUS: dict[str, Callable[[int, int], nn.Module]] = {"none": _plain_gru, "layer": NormalisedGRU}


class GRUEncoder(nn.Module):
    """Layers of two GRUs, one forwards and one backwards, their states concatenated.

    Padding is never read: the second GRU reads each sentence reversed within its own length, so no length need leave
    the device. S sequential steps a layer.
    """

    def __init__(self, width: int, n_layers: int, dropout: float, state_norm: str = "none"):
        super().__init__()
        make = choose(GRUS, state_norm, "state_norm")
        self.forwards = nn.ModuleList([make(width, width // 2) for _ in range(n_layers)])
        self.backwards = nn.ModuleList([make(width, width // 2) for _ in range(n_layers)])
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
        """Return the states at each token, zeros at padding, and the last state of either direction."""
        columns = torch.arange(x.shape[1], device=x.device)
        token_mask = columns < lengths[:, None]
        reverse = torch.where(token_mask, lengths[:, None] - 1 - columns, columns)
        for layer, (ahead, back) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            x = self.dropout(x) if layer else x
            reversed_states, _ = back(_gather(x, reverse))
            x = torch.cat([ahead(x)[0], _gather(reversed_states, reverse)], dim=-1)
        first_half, second_half = _gather(x, lengths[:, None] - 1)[:, 0].chunk(2, -1)[0], x[:, 0].chunk(2, -1)[1]
        return x * token_mask[..., None], torch.cat([first_half, second_half], dim=-1)


def _gather(x: Float[Tensor, "B S D"], columns: Int[Tensor, "B S2"]) -> Float[Tensor, "B S2 D"]:
    return x.gather(1, columns[..., None].expand(-1, -1, x.shape[-1]))


class GRUDecoder(nn.Module):
    """Layers of GRU cells, each reading the one below (Cho et al. 2014, arXiv:1406.1078).

    The first layer reads a token and a context, concatenated. The tokens' part of its gates depends on no earlier step,
    so it is computed for all tokens at once where they are known. With `state_norm="layer"` both projections of a cell
    pass through a `GateNorm`.
    """

    def __init__(
        self, d_word: int, d_context: int, width: int, n_layers: int, dropout: float, state_norm: str = "none"
    ):
        super().__init__()
        self.width = width
        self.d_word = d_word
        d_inputs = [d_word + d_context, *[width] * (n_layers - 1)]
        # They hold the parameters, under PyTorch's names, and are never called.
        self.cells: Any = nn.ModuleList([nn.GRUCell(d_input, width) for d_input in d_inputs])
        self.is_normalised = choose({"none": False, "layer": True}, state_norm, "state_norm")
        n_norms = n_layers if self.is_normalised else 0
        self.input_norms = nn.ModuleList([GateNorm(width) for _ in range(n_norms)])
        self.state_norms = nn.ModuleList([GateNorm(width) for _ in range(n_norms)])
        self.dropout = Dropout(dropout)

    def word_gates(self, words: Float[Tensor, "*R D2"]) -> Float[Tensor, "*R D3"]:
        """Return the tokens' part of the gates of the first layer; a norm adds the bias to the whole of them."""
        cell = self.cells[0]
        return F.linear(words, cell.weight_ih[:, : self.d_word], None if self.is_normalised else cell.bias_ih)

    def step_weights(self) -> tuple[Float[Tensor, "D3 E"], Float[Tensor, "D3 D"], Float[Tensor, " D3"]]:
        """Return what the first layer applies at each step: weights of the context, weights and bias of the state."""
        cell = self.cells[0]
        return cell.weight_ih[:, self.d_word :], cell.weight_hh, cell.bias_hh

    def forward(
        self, word_gates: Float[Tensor, "R D3"], context: Float[Tensor, "R E"], hidden: Float[Tensor, "L R D"]
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "L R D"]]:
        """Return the new state of the top layer, and of all layers."""
        after: list[Tensor] = []
        for layer, cell in enumerate(self.cells):
            biases = (None, None) if self.is_normalised else (cell.bias_ih, cell.bias_hh)
            if layer == 0:
                of_input = word_gates + F.linear(context, cell.weight_ih[:, self.d_word :])
            else:
                of_input = F.linear(self.dropout(after[-1]), cell.weight_ih, biases[0])
            of_state = F.linear(hidden[layer], cell.weight_hh, biases[1])
            if self.is_normalised:
                of_input = self.input_norms[layer](of_input, cell.bias_ih)
                of_state = self.state_norms[layer](of_state, cell.bias_hh)
            after.append(ops.gru_gates(of_input, of_state, hidden[layer]))
        return after[-1], torch.stack(after)


@dataclass(frozen=True, eq=False)
class RecurrentState(State):
    """The encoder's states with their mask, and the decoder's hidden layers for each hypothesis."""

    memory: Float[Tensor, "B 1 S D"]
    features: Float[Tensor, "B 1 S F"]  # the attention's `key_features` of the memory
    mask: Mask
    hidden: Float[Tensor, "L R D"]
    length: int  # tokens read

    @property
    def query(self) -> Float[Tensor, "B 1 N D"]:
        """The top hidden layer, all hypotheses of a sentence together."""
        return self.hidden[-1].view(len(self.memory), 1, -1, self.hidden.shape[-1])

    def reorder(self, rows: Int[Tensor, " R"]) -> "RecurrentState":
        return replace(self, hidden=self.hidden[:, rows])

    def keep(self, sentences: Int[Tensor, " M"]) -> "RecurrentState":
        rows = hypothesis_rows(sentences, self.hidden.shape[1] // len(self.memory))
        memory, features, mask = self.memory[sentences], self.features[sentences], self.mask.select(sentences)
        return RecurrentState(memory, features, mask, self.hidden[:, rows], self.length)


class Recurrent(Seq2Seq):
    """GRU encoder, GRU decoder, attention between them (Bahdanau et al. 2015, arXiv:1409.0473).

    At each step the decoder's top hidden state is the query, the encoder's states are keys and values, and the context
    is concatenated to the embedded token. n sequential steps for n tokens, in training too.

    With `context="last"` there is no choice: all weight is on the last token, whose place in the memory is taken by the
    last states of both directions, so that one vector is all that the decoder knows of a sentence (Sutskever et al.
    2014, arXiv:1409.3215).
    """

    def __init__(
        self,
        src: Embedding,
        tgt: Embedding,
        attention: Attention,
        encoder: GRUEncoder,
        decoder: GRUDecoder,
        output: Output,
        dropout: float,
        context: str = "attention",
    ):
        super().__init__()
        self.src = src
        self.tgt = tgt
        self.attends = choose({"attention": True, "last": False}, context, "context")
        self.attention = attention
        self.encoder = encoder
        self.decoder = decoder
        self.first = nn.Linear(decoder.width, decoder.width * len(decoder.cells))
        self.mix = Linear(decoder.width * 2, output.table.embedding_dim)
        self.dropout = Dropout(dropout)
        self.output = output
        self.limit = tgt.position.limit

    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        state = self.start(batch.src, 1)
        words = self.decoder.word_gates(self.tgt(batch.tgt.inputs, batch.tgt.positions).transpose(0, 1))
        return self._features(*self._decode_all(words, state)).transpose(0, 1)

    def start(self, src: Source, n_hypotheses: int) -> RecurrentState:
        words = self.src(src.ids, src.positions)
        memory, ends = self.encoder(words, src.lengths)
        hidden = torch.tanh(self.first(ends)).unflatten(-1, (len(self.decoder.cells), -1)).transpose(0, 1)
        hidden = hidden.repeat_interleave(n_hypotheses, dim=1).contiguous()
        mask = src.mask
        if not self.attends:
            last = torch.arange(memory.shape[1], device=memory.device) == src.lengths[:, None] - 1  # (B, S)
            memory = torch.where(last[..., None], ends[:, None], 0.0)
            mask = mask & allow(last[:, None, None])
        memory = memory[:, None]
        return RecurrentState(memory, self.attention.key_features(memory), mask, hidden, 0)

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], RecurrentState]:
        assert isinstance(state, RecurrentState), f"a recurrent model continues its own states, got {type(state)}"
        positions = torch.full((1, 1), state.length, device=tokens.device)
        words = self.decoder.word_gates(self.tgt(tokens[:, None], positions)[:, 0])
        hidden, context, after = self._decode(words, state)
        return self.output(self._features(hidden, context)), after

    def _decode_all(
        self, words: Float[Tensor, "T B D3"], state: RecurrentState
    ) -> tuple[Float[Tensor, "T B D"], Float[Tensor, "T B D"]]:
        """Return the decoder's top states and contexts of all steps."""
        if (attention := self._fused(words, state)) is not None:
            weights = (*self.decoder.step_weights(), attention.w_q[0], attention.w_v[0])
            f_k, values = state.features[:, 0], state.memory[:, 0]
            return ops.attention_gru(words, state.hidden[0], f_k, values, state.mask.key_lengths, weights)
        states, contexts = [], []
        for word in words:
            hidden, context, state = self._decode(word, state)
            states.append(hidden)
            contexts.append(context)
        return torch.stack(states), torch.stack(contexts)

    def _fused(self, words: Tensor, state: RecurrentState) -> Additive | None:
        """Return the attention where one kernel runs all steps: on a GPU, one layer without norm, additive attention.

        Only for that very class, since a subclass may compute anything, and only where its own kernel is the one that
        the loop runs.
        """
        attention = self.attention
        fits = len(self.decoder.cells) == 1 and not self.decoder.is_normalised and words.numel() > 0
        if type(attention) is not Additive or not fits:
            return None
        return attention if attention.kernel(state.query, state.memory, state.memory, state.mask) == "few" else None

    def _decode(
        self, words: Float[Tensor, "R D3"], state: RecurrentState
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R D"], RecurrentState]:
        context = self.attention(state.query, state.memory, state.memory, state.mask, features=state.features)
        context = context.reshape(len(words), -1)
        top, hidden = self.decoder(words, context, state.hidden)
        return top, context, replace(state, hidden=hidden, length=state.length + 1)

    def _features(self, hidden: Float[Tensor, "*R D"], context: Float[Tensor, "*R D"]) -> Float[Tensor, "*R D"]:
        return self.dropout(torch.tanh(self.mix(torch.cat([hidden, context], dim=-1))))
