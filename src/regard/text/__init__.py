"""Strings to ids and back: corpora, tokenizers and stores; no tensors."""

from regard.text.corpus import read_pairs
from regard.text.pair import Pair, normalise
from regard.text.prepare import prepare
from regard.text.prepared import Prepared, open_prepared
from regard.text.report import DataReport, Finding
from regard.text.store import IdStore, write_store
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import train_tokenizer

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
