"""Positions in a dialogue: which token, in which turn, by which speaker."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.position.absolute import Absolute
from regard.position.contract import check_range
from regard.position.sinusoidal import check_base, sinusoids


class Turns(Absolute):
    """Codes (token, turn, speaker) side by side: two sinusoidal codes and a learned one, after arXiv:1901.08149.

    Turn and speaker take a quarter of the width each. `n_speakers · width / 4` parameters.
    """

    n_axes = 3

    def __init__(self, width: int, n_speakers: int = 2, base: float = 10000.0, join: str = "add"):
        super().__init__(width, join)
        if width < 3:
            raise ValueError(f"width must have a feature for token, turn and speaker, got {width}")
        if n_speakers < 1:
            raise ValueError(f"n_speakers must be 1 or more, got {n_speakers}")
        self.base = check_base(base)
        self.quarter = max(1, width // 4)
        self.speakers: Float[Tensor, "speakers D"] = nn.Parameter(torch.randn(n_speakers, self.quarter) * 0.02)

    def places(self, n: int) -> Int[Tensor, "1 T 3"]:
        """Gives a dialogue in which the speakers take turns of eight tokens."""
        token = torch.arange(n)
        return torch.stack([token, token // 8, token // 8 % len(self.speakers)], dim=-1)[None]

    def codes(self, positions: Int[Tensor, "B T 3"]) -> Float[Tensor, "B T D"]:
        token, turn, speaker = positions.unbind(dim=-1)
        check_range(speaker, len(self.speakers), "speakers")
        token_codes = sinusoids(token, self.width - 2 * self.quarter, self.base)
        turn_codes = sinusoids(turn, self.quarter, self.base)
        return torch.cat([token_codes, turn_codes, self.speakers[speaker].to(token_codes.dtype)], dim=-1)
