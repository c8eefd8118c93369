"""One call from a model's folder to a translator."""

from dataclasses import replace
from os import PathLike
from pathlib import Path

from regard.checkpoint import load_model
from regard.config import choose
from regard.decode.translator import Translator
from regard.model.packed import PACKED
from regard.model.swift import swift


def load(path: str | PathLike[str], precision: str = "float32") -> Translator:
    """Opens a model folder, or the model inside a run's folder, ready to translate; `int8` is quicker on a CPU."""
    choose(PACKED, precision, "precision")
    checkpoint = load_model(Path(path))
    return Translator.of(replace(checkpoint, model=swift(checkpoint.model, precision)))
