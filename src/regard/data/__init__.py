"""Strings to ids and back: corpora, tokenizers and stores; no tensors."""

from regard.data.cleaning import DataReport, LeftOut
from regard.data.dataset import Dataset, open_dataset
from regard.data.formats import read_pairs
from regard.data.normalise import Pair, normalise
from regard.data.prepare import prepare
from regard.data.store import IdStore, write_store
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import train_tokenizer

__all__ = [
    "DataReport",
    "Dataset",
    "IdStore",
    "LeftOut",
    "Pair",
    "Tokenizer",
    "normalise",
    "open_dataset",
    "prepare",
    "read_pairs",
    "train_tokenizer",
    "write_store",
]
