"""Which pieces of a vocabulary are punctuation."""

import unicodedata

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.text.tokenizer import Side, Tokenizer
from regard.trace.words import MARK


def is_punctuation(piece: str) -> bool:
    """Tells whether a piece is made of signs alone that Unicode calls punctuation, with or without a space."""
    signs = piece.replace(MARK, "")
    return bool(signs) and all(unicodedata.category(sign).startswith("P") for sign in signs)


def punctuation_of(tokenizer: Tokenizer, side: Side) -> Bool[Tensor, " V"]:
    """Tells of each id whether it is punctuation."""
    return torch.tensor([is_punctuation(each) for each in tokenizer.pieces(range(tokenizer.vocab_size(side)), side)])
