"""The recurrent model with attention: a GRU reads, a GRU writes and looks back at what was read."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Additive, Attention
from regard.batch import Batch, Source
from regard.mask import Mask
from regard.model.dropout import Dropout
from regard.model.embedding import Embedding, Output
from regard.model.linear import Linear
from regard.model.reader import Reader
from regard.model.seq2seq import Seq2Seq, State
from regard.model.writer import Writer


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
        memory, features, mask = self.memory[sentences], self.features[sentences], self.mask.of(sentences)
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
        self.mix = Linear(decoder.width * 2, output.table.embedding_dim)
        self.dropout = Dropout(dropout)
        self.output = output
        self.limit = tgt.position.limit

    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        state = self.start(batch.src, 1)
        words = self.decoder.read(self.tgt(batch.tgt.read, batch.tgt.positions).transpose(0, 1))
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
        words = self.decoder.read(self.tgt(tokens[:, None], places)[:, 0])
        written, context, after = self._write(words, state)
        return self.output(self._said(written, context)), after

    def _write_all(
        self, words: Float[Tensor, "T B D3"], state: RecurrentState
    ) -> tuple[Float[Tensor, "T B D"], Float[Tensor, "T B D"]]:
        """Gives the decoder's top states and contexts of all steps."""
        if (attention := self._fused(words, state)) is not None:
            from regard.kernel.additive_writer import additive_writer  # only there is Triton installed

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
