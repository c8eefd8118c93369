"""What the other endpoints answer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Translated:
    """Answer of /translate: strings for one text, lists for a list of texts."""

    # LibreTranslate's words
    translatedText: str | list[str]  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None  # where some were asked for, without the best
    detectedLanguage: "Detected | list[Detected] | None" = None  # noqa: N815


@dataclass(frozen=True)
class Detected:
    """The language that a text seems to be in, by its script."""

    language: str
    confidence: float  # per cent


@dataclass(frozen=True)
class Language:
    """One language that can be translated from."""

    code: str
    name: str
    targets: list[str]


@dataclass(frozen=True)
class Scores:
    """What a model reached."""

    bleu: float | None
    measured_on: str | None  # test or valid


@dataclass(frozen=True)
class Model:
    """One model of this server."""

    name: str
    src_lang: str
    tgt_lang: str
    family: str  # transformer or recurrent
    n_encoder_layers: int
    n_decoder_layers: int
    n_heads: int
    d_model: int
    d_ff: int
    attention: str
    position: str
    vocab_size: int  # of the target side
    max_len: int
    scores: Scores
    loaded: bool


@dataclass(frozen=True)
class Limits:
    """What this server takes."""

    max_chars: int  # of all texts of a request together
    max_trace_chars: int  # of a text that is looked into
    max_texts: int
    max_beam: int
    max_body: int  # bytes


@dataclass(frozen=True)
class Models:
    """Answer of /models."""

    models: list[Model]
    limits: Limits
    version: str


@dataclass(frozen=True)
class Health:
    """Answer of /health."""

    status: str  # ok


@dataclass(frozen=True)
class Failure:
    """Answer to what cannot be done."""

    error: str


@dataclass(frozen=True)
class Written:
    """One line of /translate/stream: the best hypothesis so far, or, in the last line, the translation."""

    text: str
    pieces: list[str]
    score: float  # log-probability by its length
    done: bool
    error: str | None = None  # where something went wrong on the way; then this is the last line
