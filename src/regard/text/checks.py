"""Settings of text that cannot be met, found before anything is read."""

from regard.config import DataSettings, TextSettings, choose
from regard.text.corpus import check_sources
from regard.text.exclude import check_excluded
from regard.text.stream import check_file
from regard.text.tokenizer import Tokenizer
from regard.text.vocabulary import check_symbols

MAX_VARIANTS = 255
FORMS = ("pairs", "text", "documents")


def check_settings(data: DataSettings, text: TextSettings, tokenizer: Tokenizer | None) -> None:
    """Raises ValueError naming the first setting that is wrong."""
    if not data.train:
        raise ValueError("data.train must name the training text, got nothing")
    if data.valid_size < 1:
        raise ValueError(f"data.valid_size must be 1 or more, got {data.valid_size}")
    _check_mixture(data, text)
    _check_text(text)
    check_symbols(text.symbols)
    if tokenizer is not None and (missing := [symbol for symbol in text.symbols if symbol not in tokenizer.symbols]):
        raise ValueError(
            f"text.symbols must be symbols of the tokenizer that is given, got {missing[0]!r}; "
            f"it has {', '.join(sorted(tokenizer.symbols)) or 'none'}: leave it out, or learn another tokenizer"
        )
    check_sources((*data.train, *data.valid, *data.test))
    check_excluded(data.exclude)


def check_text(data: DataSettings, text: TextSettings, tokenizer: Tokenizer | None) -> None:
    """Raises ValueError naming the first setting that text without translations cannot have."""
    choose(dict.fromkeys(FORMS), data.form, "data.form")
    if not data.train:
        raise ValueError("data.train must name the training text, got nothing")
    if data.valid_size < 1:
        raise ValueError(f"data.valid_size must be 1 or more, got {data.valid_size}")
    pairs_only: dict[str, object] = {"data.tags": data.tags, "data.reverse": data.reverse, "data.exclude": data.exclude}
    pairs_only |= {"text.sampling": text.sampling, "text.symbols": text.symbols}
    documents_only = {} if data.form == "documents" else {"data.weights": data.weights, "data.columns": data.columns}
    for name, given in (pairs_only | documents_only).items():
        if given:
            raise ValueError(f"{name} has no meaning for data.form {data.form!r}, got {given!r}: leave it out")
    _check_mixture(data, text)
    _check_text(text)
    if text.max_len < 2:
        raise ValueError(f"text.max_len must be 2 or more for text that is gone on with, got {text.max_len}")
    if wrong := [column for column in data.columns if column < 1]:
        raise ValueError(f"data.columns must be counted from 1, got {wrong[0]}")
    for source in (*data.train, *data.valid, *data.test):
        if source != "-":
            check_file(source)


def _check_mixture(data: DataSettings, text: TextSettings) -> None:
    for name, given in (("weights", data.weights), ("tags", data.tags)):
        if given and len(given) != len(data.train):
            raise ValueError(
                f"data.{name} must have one entry for each source of data.train, got {len(given)} for {len(data.train)}"
            )
    for weight in data.weights:
        if not 0 < weight < float("inf"):
            raise ValueError(
                f"data.weights must be numbers above 0, got {weight}; leave out a source that is not wanted"
            )
    for tag in data.tags:
        if tag and tag not in text.symbols:
            raise ValueError(
                f"data.tags must be symbols of text.symbols, or empty, got {tag!r}; "
                f"text.symbols are {', '.join(text.symbols) or 'none'}: add it there"
            )


def _check_text(text: TextSettings) -> None:
    if text.max_len < 1:
        raise ValueError(f"text.max_len must be 1 or more, got {text.max_len}")
    if text.max_ratio < 1:
        raise ValueError(f"text.max_ratio must be 1 or more, got {text.max_ratio}")
    if not 0 <= text.sampling <= 1:
        raise ValueError(f"text.sampling must lie in 0 … 1, got {text.sampling}")
    if not 1 <= text.variants <= MAX_VARIANTS:
        raise ValueError(f"text.variants must lie in 1 … {MAX_VARIANTS}, got {text.variants}")
