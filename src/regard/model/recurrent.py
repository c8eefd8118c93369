"""GRU encoder and decoder with attention."""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Additive, Attention
from regard.batch import Batch, Source
from regard.mask import Mask
from regard.model.layers import Dropout, Embedding, Linear, Output
from regard.model.seq2seq import Seq2Seq, State


class GRUEncoder(nn.Module):
    """Layers of two GRUs, one from the first word on, one from the last, their states side by side.

    Padding is never read: the second GRU reads each sentence turned round inside its own length. So no length need
    leave the device. S sequential steps a layer.
    """

    def __init__(self, width: int, n_layers: int, dropout: float):
        super().__init__()
        self.forwards = nn.ModuleList([nn.GRU(width, width // 2, batch_first=True) for _ in range(n_layers)])
        self.backwards = nn.ModuleList([nn.GRU(width, width // 2, batch_first=True) for _ in range(n_layers)])
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B D"]]:
        """Gives the states at each word, zeros at padding, and the two states in which the reading ended."""
        places = torch.arange(x.shape[1], device=x.device)
        real = places < lengths[:, None]
        turned = torch.where(real, lengths[:, None] - 1 - places, places)
        for layer, (ahead, back) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            x = self.dropout(x) if layer else x
            last_first, _ = back(_taken(x, turned))
            x = torch.cat([ahead(x)[0], _taken(last_first, turned)], dim=-1)
        first_half, second_half = _taken(x, lengths[:, None] - 1)[:, 0].chunk(2, -1)[0], x[:, 0].chunk(2, -1)[1]
        return x * real[..., None], torch.cat([first_half, second_half], dim=-1)


def _taken(x: Float[Tensor, "B S D"], places: Int[Tensor, "B S2"]) -> Float[Tensor, "B S2 D"]:
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))


class GRUDecoder(nn.Module):
    """Layers of GRU cells, each reading the one below (Cho et al. 2014, arXiv:1406.1078).

    The first layer reads a word and a context side by side. What it makes of the words does not wait for anything, so
    that it is made of all words at once where they are known.
    """

    def __init__(self, d_word: int, d_context: int, width: int, n_layers: int, dropout: float):
        super().__init__()
        self.width = width
        self.d_word = d_word
        d_inputs = [d_word + d_context, *[width] * (n_layers - 1)]
        # They hold the parameters, under PyTorch's names; it is not they that run.
        self.cells: Any = nn.ModuleList([nn.GRUCell(d_input, width) for d_input in d_inputs])
        self.dropout = Dropout(dropout)

    def word_gates(self, words: Float[Tensor, "*R D2"]) -> Float[Tensor, "*R D3"]:
        """Gives the words' share in the gates of the first layer."""
        cell = self.cells[0]
        return F.linear(words, cell.weight_ih[:, : self.d_word], cell.bias_ih)

    def looping(self) -> tuple[Float[Tensor, "D3 E"], Float[Tensor, "D3 D"], Float[Tensor, " D3"]]:
        """Gives what the first layer applies at each step: to the context, to its state, and its state's bias."""
        cell = self.cells[0]
        return cell.weight_ih[:, self.d_word :], cell.weight_hh, cell.bias_hh

    def forward(
        self, read: Float[Tensor, "R D3"], context: Float[Tensor, "R E"], hidden: Float[Tensor, "L R D"]
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "L R D"]]:
        """Gives the top layer's new state, and all of them."""
        after: list[Tensor] = []
        for layer, cell in enumerate(self.cells):
            if layer == 0:
                of_input = read + F.linear(context, cell.weight_ih[:, self.d_word :])
            else:
                of_input = F.linear(self.dropout(after[-1]), cell.weight_ih, cell.bias_ih)
            of_state = F.linear(hidden[layer], cell.weight_hh, cell.bias_hh)
            after.append(gates(of_input, of_state, hidden[layer]))
        return after[-1], torch.stack(after)


def gates(
    of_input: Float[Tensor, "R D3"], of_state: Float[Tensor, "R D3"], state: Float[Tensor, "R D"]
) -> Float[Tensor, "R D"]:
    """Gives `z h + (1 − z) n` with `r = σ(i_r + s_r)`, `z = σ(i_z + s_z)` and `n = tanh(i_n + r s_n)`.

    i is what the input asks for, s what the state h does, each in the order r, z, n, as in PyTorch and cuDNN.
    """
    if of_input.is_cuda and of_input.dtype.itemsize <= 4 and of_input.numel() > 0:
        from regard.kernels.gru import gru_gates  # only there is Triton installed

        return gru_gates(of_input, of_state, state)
    D = state.shape[-1]
    r, z = torch.sigmoid(of_input[:, : 2 * D] + of_state[:, : 2 * D]).chunk(2, dim=-1)
    new = torch.tanh(torch.addcmul(of_input[:, 2 * D :], r, of_state[:, 2 * D :]))
    return torch.lerp(new, state.to(new.dtype), z)


@dataclass(frozen=True, eq=False)
class RecurrentState(State):
    """The encoder's states, who may look at them, and the decoder's hidden layers for each hypothesis."""

    memory: Float[Tensor, "B 1 S D"]
    features: Float[Tensor, "B 1 S F"]  # what the attention's score makes of the memory
    mask: Mask
    hidden: Float[Tensor, "L R D"]
    length: int  # tokens written

    @property
    def query(self) -> Float[Tensor, "B 1 N D"]:
        """The top hidden layer, hypotheses of a sentence side by side."""
        return self.hidden[-1].view(len(self.memory), 1, -1, self.hidden.shape[-1])

    def reorder(self, rows: Int[Tensor, " R"]) -> "RecurrentState":
        return replace(self, hidden=self.hidden[:, rows])

    def keep(self, sentences: Int[Tensor, " M"]) -> "RecurrentState":
        n = self.hidden.shape[1] // len(self.memory)
        rows = (sentences[:, None] * n + torch.arange(n, device=sentences.device)).flatten()
        memory, features, mask = self.memory[sentences], self.features[sentences], self.mask.select(sentences)
        return RecurrentState(memory, features, mask, self.hidden[:, rows], self.length)


class Recurrent(Seq2Seq):
    """GRU encoder, GRU decoder, attention between them (Bahdanau et al. 2015, arXiv:1409.0473; S4.1).

    At each step the decoder's top hidden state is the query, the encoder's states are keys and values, and the context
    is set beside the embedded token. n sequential steps for n tokens, in training too.
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
    ):
        super().__init__()
        self.src = src
        self.tgt = tgt
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
        return self._said(*self._write_all(words, state)).transpose(0, 1)

    def start(self, src: Source, n_hypotheses: int) -> RecurrentState:
        words = self.src(src.ids, src.positions)
        memory, ends = self.encoder(words, src.lengths)
        hidden = torch.tanh(self.first(ends)).unflatten(-1, (len(self.decoder.cells), -1)).transpose(0, 1)
        hidden = hidden.repeat_interleave(n_hypotheses, dim=1).contiguous()
        memory = memory[:, None]
        return RecurrentState(memory, self.attention.key_features(memory), src.mask, hidden, 0)

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], RecurrentState]:
        assert isinstance(state, RecurrentState), f"a recurrent model continues its own states, got {type(state)}"
        places = torch.full((1, 1), state.length, device=tokens.device)
        words = self.decoder.word_gates(self.tgt(tokens[:, None], places)[:, 0])
        written, context, after = self._write(words, state)
        return self.output(self._said(written, context)), after

    def _write_all(
        self, words: Float[Tensor, "T B D3"], state: RecurrentState
    ) -> tuple[Float[Tensor, "T B D"], Float[Tensor, "T B D"]]:
        """Gives the decoder's top states and contexts of all steps."""
        if (attention := self._fused(words, state)) is not None:
            from regard.kernels.gru import additive_writer  # only there is Triton installed

            maps = (*self.decoder.looping(), attention.w_q[0], attention.w_v[0])
            f_k, values = state.features[:, 0], state.memory[:, 0]
            return additive_writer(words, state.hidden[0], f_k, values, state.mask.key_lengths, maps)
        written, contexts = [], []
        for read in words:
            x, context, state = self._write(read, state)
            written.append(x)
            contexts.append(context)
        return torch.stack(written), torch.stack(contexts)

    def _fused(self, words: Tensor, state: RecurrentState) -> Additive | None:
        """Gives the attention if all steps together are a loop of kernels: on a GPU, with one layer and that attention.

        By the very class, as another may do anything; and only where its own kernel is the one that the loop has.
        """
        attention = self.attention
        if type(attention) is not Additive or len(self.decoder.cells) > 1 or words.numel() == 0:
            return None
        return attention if attention.kernel(state.query, state.memory, state.memory, state.mask) == "few" else None

    def _write(
        self, words: Float[Tensor, "R D3"], state: RecurrentState
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R D"], RecurrentState]:
        context = self.attention(state.query, state.memory, state.memory, state.mask, features=state.features)
        context = context.reshape(len(words), -1)
        written, hidden = self.decoder(words, context, state.hidden)
        return written, context, replace(state, hidden=hidden, length=state.length + 1)

    def _said(self, written: Float[Tensor, "*R D"], context: Float[Tensor, "*R D"]) -> Float[Tensor, "*R D"]:
        return self.dropout(torch.tanh(self.mix(torch.cat([written, context], dim=-1))))
