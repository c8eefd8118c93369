"""A reader of questions: an encoder that says where in a text an answer begins and ends."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.batch import Source
from regard.model.embedding import Embedding
from regard.model.encoder import Encoder


@dataclass(frozen=True, eq=False)
class Reading:
    """Questions with their texts, one sequence each: the tokens, and for each of them whose it is.

    A mark of 0 is a token of the question, a sign or padding; what is marked otherwise may be an answer.
    """

    src: Source
    marks: Int[Tensor, "B S"]

    def to(self, device: torch.device) -> "Reading":
        """Moves to a device."""
        return Reading(self.src.to(device), self.marks.to(device, non_blocking=True))

    @property
    def allowed(self) -> Bool[Tensor, "B S"]:
        """Tells where an answer may begin or end: in the text, or at the first token, which says that none is here."""
        first = torch.arange(self.marks.shape[1], device=self.marks.device) == 0
        return (self.marks > 0) | first


class SpanReader(nn.Module):
    """Tokens and marks, a Transformer's encoder, and two numbers for each token (arXiv:1810.04805, 4.2).

    Question and text are read as one sequence, so that every layer lets each look at the other. Marks begin as large as
    words: from zeros a reader takes long to find out what they tell.
    """

    def __init__(self, words: Embedding, encoder: Encoder, width: int, n_marks: int):
        super().__init__()
        self.words = words
        self.encoder = encoder
        self.marks = nn.Embedding(n_marks, width)
        self.ends = nn.Linear(width, 2)
        nn.init.normal_(self.marks.weight, std=width**-0.5)
        nn.init.normal_(self.ends.weight, std=0.02)
        nn.init.zeros_(self.ends.bias)

    def read(self, reading: Reading) -> Float[Tensor, "B S D"]:
        """Gives the encoder's vector for each token."""
        src = reading.src
        real = torch.arange(src.ids.shape[1], device=src.ids.device) < src.lengths[:, None]
        x = self.words(src.ids, src.positions) + self.marks(reading.marks) * self.marks.embedding_dim**0.5
        return self.encoder(x, src.positions, src.mask, real)

    def forward(self, reading: Reading) -> tuple[Float[Tensor, "B S"], Float[Tensor, "B S"]]:
        """Gives the logits of an answer's first and of its last token, −∞ where none may stand."""
        logits = self.ends(self.read(reading))
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        start, end = exact.masked_fill(~reading.allowed[..., None], -torch.inf).unbind(-1)
        return start, end
