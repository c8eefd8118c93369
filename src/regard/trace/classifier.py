"""What a classifier looked at while it read one example."""

from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from regard.model.classifier import Classifier
from regard.trace.recorded import RecordedLook
from regard.trace.tape import Tape


def classifier_looks(
    model: Classifier, tokens: Shaped[Tensor, "1 T *P"], positions: Int[Tensor, "1 T *axes"]
) -> tuple[RecordedLook, ...]:
    """Gives the look of every layer, with all its heads; the model that runs is not touched."""
    copy: Any = deepcopy(model).eval()
    tape = Tape()
    for number, layer in enumerate(copy.encoder.layers):
        tape.listen_to_heads(layer.attention, "encoder", number)
    with torch.no_grad():
        copy(tokens, positions)
    return tuple(heard.look() for heard in tape.heard)


def class_weights(
    model: Classifier, tokens: Shaped[Tensor, "1 T *P"], positions: Int[Tensor, "1 T *axes"]
) -> Float[Tensor, "L H T"]:
    """Gives how much the pooled token looks at each other token, or where the pool is a mean, all tokens on average.

    What the pooled token keeps to itself is left out.
    """
    weights = torch.stack([look.weights() for look in classifier_looks(model, tokens, positions)])  # (L, H, Q, K)
    return weights.mean(dim=2) if model.own_token is None else weights[:, :, 0, 1:]
