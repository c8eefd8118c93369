"""How right anybody can be who is told some coordinates alone."""

from collections import Counter, defaultdict

import numpy as np
from jaxtyping import Int
from torch import Tensor

from regard.study.task import Examples


def best_possible(examples: Examples, places: Int[Tensor, "M T *axes"]) -> float:
    """Gives the largest share of these examples that a reader of sets can get right.

    A model that sees its tokens as a set of pairs (token, place) says the same wherever the sets are the same. So of
    examples with equal sets it gets no more right than those of their commonest class: a proof for these very examples,
    not an estimate. Where all sets differ it says nothing, and is 1.
    """
    groups: dict[bytes, Counter[int]] = defaultdict(Counter)
    for number, (length, label) in enumerate(zip(examples.lengths.tolist(), examples.labels.tolist(), strict=True)):
        tokens = examples.tokens[number, :length].reshape(length, -1)
        where = places[number if len(places) > 1 else 0, :length].reshape(length, -1)
        pairs = np.concatenate([where.cpu().double().numpy(), tokens.cpu().double().numpy()], axis=1)
        groups[pairs[np.lexsort(pairs.T)].tobytes()][label] += 1
    return sum(max(labels.values()) for labels in groups.values()) / len(examples)
