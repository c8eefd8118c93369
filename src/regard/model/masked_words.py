"""Words that were hidden, told from what stands around them: how an encoder learns from text alone."""

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.model.span_reader import Reading, SpanReader


class MaskedWords(nn.Module):
    """A reader whose vectors become words, by the reader's own table (arXiv:1810.04805, 3.1)."""

    def __init__(self, reader: SpanReader):
        super().__init__()
        self.reader = reader
        self.to_word = nn.Linear(reader.marks.embedding_dim, reader.words.table.embedding_dim)

    def forward(self, reading: Reading, hidden: Bool[Tensor, "B S"]) -> Float[Tensor, "N V"]:
        """Gives the logits of the hidden tokens, row by row."""
        vectors = self.to_word(self.reader.read(reading)[hidden])
        return F.linear(vectors, self.reader.words.table.weight)
