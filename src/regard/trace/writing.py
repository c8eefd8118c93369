"""A text while it is written: each piece with what was looked back at to say it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import DecodeSettings
from regard.decode.generate import generate
from regard.decode.writer import Writer
from regard.model import DecoderOnly
from regard.trace.private import private_copy
from regard.trace.tape import Heard, Tape


@dataclass(frozen=True, eq=False)
class Wrote:
    """One token, its log-probability, and the mean over all heads of the weights by which it was said.

    The last weight is of the token before it, and so on backwards; a model that has forgotten the beginning has fewer.
    """

    token: int
    log_prob: float
    looked: Float[Tensor, " T"]


def watch_writing(writer: Writer, prompt: list[int], settings: DecodeSettings) -> Iterator[Wrote]:
    """Writes as `writer.generate` does, on a copy of its modules that is listened to, and tells each token at once."""
    model, tape = private_copy(cast(DecoderOnly, writer.model)), Tape()
    for number, layer in enumerate(model.decoder.layers):
        tape.listen(layer.attention.attention, "decoder", number)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    for token, log_prob in generate(model, prompt, settings, writer.room):
        yield Wrote(token, log_prob, torch.stack([_last_row(heard) for heard in tape.heard]).mean(0))


def _last_row(heard: Heard) -> Float[Tensor, " T"]:
    """Gives what the newest query looked at, over all heads, and forgets the call."""
    weights = heard.look().weights()[:, -1].mean(0)
    heard.calls.clear()
    heard.outputs.clear()
    return weights
