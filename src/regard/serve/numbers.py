"""Numbers as JSON has them: finite, and with no more digits than they are worth."""

from math import isfinite
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

DIGITS = 7  # a float32 has no more


def number(value: float) -> float | None:
    """Gives a number to seven digits, or nothing where there is none."""
    return float(f"{value:.{DIGITS}g}") if isfinite(value) else None


def digits(values: Float[Tensor, "*shape"]) -> Any:
    """Gives nested lists of numbers to seven digits; all must be finite."""
    exact = values.detach().double().cpu().numpy()
    with np.errstate(divide="ignore"):
        places = DIGITS - 1 - np.floor(np.log10(np.abs(exact)))
    scale = 10.0 ** np.clip(places, -300, 300)
    return np.where(exact == 0.0, 0.0, np.round(exact * scale) / scale).tolist()
