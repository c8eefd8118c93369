"""One call from a model's folder to a translator."""

from os import PathLike
from pathlib import Path

from regard.checkpoint import load_model
from regard.decode.translator import Translator


def load(path: str | PathLike[str]) -> Translator:
    """Opens a model folder, or the model inside a run's folder, ready to translate."""
    return Translator.of(load_model(Path(path)))
