"""A random model with a text that it can read, for studies of models."""

import random

from tests.trace.makers import make_model, make_translator

LETTERS = "abcdefghij"


def make_pairs(n=24, seed=3, shortest=2, longest=9):
    """Draws pairs of words of letters that the tests' tokenizer knows."""
    chance = random.Random(seed)

    def word():
        return "".join(chance.choice(LETTERS) for _ in range(chance.randint(shortest, longest)))

    return [(word(), word()) for _ in range(n)]


def translator_with(**changes):
    """Makes a translator with two encoder layers and norms before sub-layers, unless told otherwise."""
    model = make_model(**{"norm_place": "before", "n_encoder_layers": 2, **changes})
    return make_translator(model)
