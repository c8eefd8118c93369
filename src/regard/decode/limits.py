"""How long a target may become."""

import numpy as np
from jaxtyping import Int

from regard.batch import Source
from regard.config import DecodeSettings
from regard.decode.prefix import Prefix
from regard.model import Seq2Seq


def max_lengths(model: Seq2Seq, src: Source, settings: DecodeSettings, prefix: Prefix) -> Int[np.ndarray, " B"]:
    """Gives the tokens that each target may have: `max_ratio` times its source's and `max_extra`, EOS counted in both.

    A forced prefix always has room for one token after it. No target is longer than the model's positions reach.
    """
    if settings.max_ratio < 0 or settings.max_extra < 0:
        given = f"{settings.max_ratio} and {settings.max_extra}"
        raise ValueError(f"max_ratio and max_extra must be 0 or more, got {given}")
    by_source = (src.lengths.cpu().numpy() * settings.max_ratio).astype(np.int64) + settings.max_extra
    wanted = np.maximum(by_source, prefix.lengths + 1)
    return wanted if model.limit is None else np.minimum(wanted, model.limit)
