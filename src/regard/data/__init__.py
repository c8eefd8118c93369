"""Strings to ids and back: corpora, tokenizers and stores; no tensors."""

from regard.data.cleaning import DataReport, Finding
from regard.data.dataset import Prepared, open_prepared
from regard.data.formats import read_pairs
from regard.data.normalise import Pair, normalise
from regard.data.prepare import prepare
from regard.data.store import IdStore, write_store
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import train_tokenizer

__all__ = [
    "DataReport",
    "Finding",
    "IdStore",
    "Pair",
    "Prepared",
    "Tokenizer",
    "normalise",
    "open_prepared",
    "prepare",
    "read_pairs",
    "train_tokenizer",
    "write_store",
]
