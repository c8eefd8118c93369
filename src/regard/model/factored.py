"""A table of tokens as the product of two smaller ones."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class FactoredTable(nn.Module):
    """`table = C Uᵀ`: a short code for each token, and one map from codes to vectors (arXiv:1909.11942).

    V E + E D parameters instead of V D. It is used as a table is: rows are looked up, and `weight` is all of it.
    """

    def __init__(self, vocab_size: int, d_embedding: int, width: int, pad_id: int):
        super().__init__()
        self.num_embeddings, self.embedding_dim = vocab_size, width
        self.codes = nn.Embedding(vocab_size, d_embedding, padding_idx=pad_id)
        self.up = nn.Linear(d_embedding, width, bias=False)
        nn.init.normal_(self.up.weight, std=(d_embedding * width) ** -0.5)  # so that scaled vectors have variance 1

    @property
    def weight(self) -> Float[Tensor, "V D"]:
        """Gives the whole table."""
        return self.up(self.codes.weight)

    def forward(self, ids: Int[Tensor, "*B"]) -> Float[Tensor, "*B D"]:
        return F.linear(self.codes(ids), self.up.weight)
