"""`torch.nn.Transformer` between a shared table and its transpose, as its tutorials do it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import ModelSettings
from regard.padding import PAD
from regard.position.absolute import sinusoids

MAX_LEN = 256


class TorchTransformer(nn.Module):
    """Gives logits; dropout stands where ours has it."""

    codes: Tensor

    def __init__(self, sizes: ModelSettings, vocab_size: int):
        super().__init__()
        self.table = nn.Embedding(vocab_size, sizes.d_model, padding_idx=PAD)
        nn.init.normal_(self.table.weight, std=sizes.d_model**-0.5)
        self.register_buffer("codes", sinusoids(torch.arange(MAX_LEN), sizes.d_model, 10000.0).float())
        self.dropout = nn.Dropout(sizes.dropout)
        n_layers = sizes.n_encoder_layers, sizes.n_decoder_layers
        self.inner = nn.Transformer(
            sizes.d_model, sizes.n_heads, *n_layers, sizes.d_ff, sizes.dropout, sizes.activation, batch_first=True
        )
        for module in self.inner.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0  # the others drop no attention weights

    def forward(self, src: Tensor, read: Tensor) -> Tensor:
        future = nn.Transformer.generate_square_subsequent_mask(read.shape[1], device=read.device)
        padded = torch.zeros_like(src, dtype=future.dtype).masked_fill(src == PAD, -torch.inf)
        x = self.inner(
            self.embed(src),
            self.embed(read),
            tgt_mask=future,
            src_key_padding_mask=padded,
            memory_key_padding_mask=padded,
            tgt_is_causal=True,
        )
        return F.linear(x, self.table.weight)

    def embed(self, ids: Tensor) -> Tensor:
        """Gives scaled vectors with their positions."""
        return self.dropout(self.table(ids) * self.table.embedding_dim**0.5 + self.codes[: ids.shape[1]])
