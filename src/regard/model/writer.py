"""A GRU that writes one token at a time."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.model.dropout import Dropout


class Writer(nn.Module):
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

    def read(self, words: Float[Tensor, "*R D2"]) -> Float[Tensor, "*R D3"]:
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
        from regard.kernel.gru_gates import gru_gates  # only there is Triton installed

        return gru_gates(of_input, of_state, state)
    D = state.shape[-1]
    r, z = torch.sigmoid(of_input[:, : 2 * D] + of_state[:, : 2 * D]).chunk(2, dim=-1)
    new = torch.tanh(torch.addcmul(of_input[:, 2 * D :], r, of_state[:, 2 * D :]))
    return torch.lerp(new, state.to(new.dtype), z)
