"""The recurrent model with attention: a GRU reads, a GRU writes and looks back at what was read."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention
from regard.batch import Batch, Source
from regard.mask import Mask
from regard.model.dropout import Dropout
from regard.model.embedding import Embedding, Output
from regard.model.reader import Reader
from regard.model.seq2seq import Seq2Seq, State
from regard.model.writer import Writer


@dataclass(frozen=True, eq=False)
class RecurrentState(State):
    """The encoder's states, who may look at them, and the decoder's hidden layers for each hypothesis."""

    memory: Float[Tensor, "B 1 S D"]
    mask: Mask
    hidden: Float[Tensor, "L R D"]
    length: int  # tokens written

    def reorder(self, rows: Int[Tensor, " R"]) -> "RecurrentState":
        return RecurrentState(self.memory, self.mask, self.hidden[:, rows], self.length)

    def keep(self, sentences: Int[Tensor, " M"]) -> "RecurrentState":
        n = self.hidden.shape[1] // len(self.memory)
        rows = (sentences[:, None] * n + torch.arange(n, device=sentences.device)).flatten()
        mask = self.mask.of(sentences)
        return RecurrentState(self.memory[sentences], mask, self.hidden[:, rows], self.length)


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
        encoder: Reader,
        decoder: Writer,
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
        self.mix = nn.Linear(decoder.width * 2, output.table.embedding_dim)
        self.dropout = Dropout(dropout)
        self.output = output

    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        state = self.start(batch.src, 1)
        words = self.tgt(batch.tgt.read, batch.tgt.positions)
        written = []
        for t in range(words.shape[1]):
            x, state = self._write(words[:, t], state)
            written.append(x)
        return torch.stack(written, dim=1)

    def start(self, src: Source, n_hypotheses: int) -> RecurrentState:
        words = self.src(src.ids, src.positions)
        memory, ends = self.encoder(words, src.lengths)
        hidden = torch.tanh(self.first(ends)).unflatten(-1, (len(self.decoder.cells), -1)).transpose(0, 1)
        hidden = hidden.repeat_interleave(n_hypotheses, dim=1).contiguous()
        return RecurrentState(memory[:, None], src.mask, hidden, 0)

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], RecurrentState]:
        assert isinstance(state, RecurrentState), f"a recurrent model continues its own states, got {type(state)}"
        places = torch.full((1, 1), state.length, device=tokens.device)
        x, after = self._write(self.tgt(tokens[:, None], places)[:, 0], state)
        return self.output(x), after

    def _write(self, words: Float[Tensor, "R D"], state: RecurrentState) -> tuple[Float[Tensor, "R D"], RecurrentState]:
        query = state.hidden[-1].view(len(state.memory), 1, -1, self.decoder.width)  # hypotheses as queries
        context = self.attention(query, state.memory, state.memory, state.mask).reshape(len(words), -1)
        out, hidden = self.decoder(torch.cat([words, context], dim=-1), state.hidden)
        x = self.dropout(torch.tanh(self.mix(torch.cat([out, context], dim=-1))))
        return x, RecurrentState(state.memory, state.mask, hidden, state.length + 1)
