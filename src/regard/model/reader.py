"""A GRU that reads sentences from both ends."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.model.dropout import Dropout


class Reader(nn.Module):
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
