"""JSON of everything but traces."""

import json
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class TranslateResponse:
    """Response of /translate: strings for one text, lists for a list of texts."""

    # LibreTranslate's names
    translatedText: str | list[str]  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None  # if requested; without the best
    detectedLanguage: "Detected | list[Detected] | None" = None  # noqa: N815


@dataclass(frozen=True)
class Detected:
    """The language of a text, detected by its script."""

    language: str
    confidence: float  # per cent


@dataclass(frozen=True)
class Language:
    """A source language and its target languages."""

    code: str
    name: str
    targets: list[str]


@dataclass(frozen=True)
class ModelScores:
    """Scores of a model."""

    bleu: float | None
    measured_on: str | None  # test or valid


@dataclass(frozen=True)
class Model:
    """A translation model of this server."""

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
    scores: ModelScores
    loaded: bool


@dataclass(frozen=True)
class Limits:
    """Limits of this server."""

    max_chars: int  # per request, all texts together
    max_trace_chars: int  # of a text to trace: the same
    max_texts: int
    max_beam: int
    max_body: int  # bytes
    max_hypotheses: int  # per request, sentences times beam
    max_seconds: float  # until a response


@dataclass(frozen=True)
class Models:
    """Response of /models."""

    models: list[Model]
    limits: Limits
    version: str


@dataclass(frozen=True)
class Health:
    """Response of /health."""

    status: str  # ok


@dataclass(frozen=True)
class ErrorResponse:
    """Response to a request that failed."""

    error: str


@dataclass(frozen=True)
class TranslationUpdate:
    """A line of /translate/stream: the best hypothesis so far or, in the last line, the translation."""

    text: str
    pieces: list[str]
    score: float  # log-probability with the length penalty
    done: bool
    error: str | None = None  # if it failed midway; this is the last line then
    id: str | None = None  # in the last line: of the trace, for GET /trace/{id}


@dataclass(frozen=True)
class LawJson:
    """A property of a position encoding, measured; null if there is nothing to measure."""

    name: str  # unique, bounded, deterministic, even_steps, distance_only, symmetric, circles or shift
    value: float | None
    holds: bool | None


@dataclass(frozen=True)
class Shift:
    """The linear map that should shift the code of any position by some steps."""

    steps: int
    exact: bool  # from the formula; otherwise fitted to all positions by least squares
    matrix: list[list[float]]  # moved = matrix · before
    place: int  # position of the example
    before: list[float]  # its code
    moved: list[float]  # the code after the map
    after: list[float]  # the code of the shifted position


@dataclass(frozen=True)
class WavesJson:
    """The periods of the rotating pairs of features, compared with the bits of a binary counter."""

    shortest: float
    longest: float
    geometric: float  # largest deviation of the ratio of neighbours from their common ratio; 0 is a perfect progression
    pairs_per_halving: float | None  # a binary counter has 1: each bit flips half as often as the one before


@dataclass(frozen=True)
class CostJson:
    """Numbers of parameters: of the encoding itself, and of the attention layer above it."""

    scheme: int
    layer_added: int
    layer_concatenated: int | None  # None where there is no code to set beside the token's vector


@dataclass(frozen=True)
class Positions:
    """A position encoding of some length and width."""

    scheme: str
    schemes: list[str]  # names of all encodings
    door: str  # embed (added to the vectors), rotate (queries and keys), bias (added to scores) or none
    length: int
    width: int
    base: float
    places: list[list[int]]  # of each row of the codes; several numbers for grids and dialogue turns
    codes: list[list[float]]  # [position][feature]; of a bias what each offset adds, [offset][head or feature]
    profile: list[float]  # mean dot product of two positions 0, 1, 2 … steps apart
    laws: list[LawJson]
    waves: WavesJson | None
    half_distance: int | None  # first distance at which the dot product is half of that at 0
    distinct_up_to: int | None  # all codes up to this position are distinct
    compared_up_to: int  # the last position that was compared with all before it
    cost: CostJson
    shift: Shift | None
    words: list[list[float]]  # random unit-variance vectors as wide as a code, to add to codes or concatenate with them


@dataclass(frozen=True)
class CurveJson:
    """Predictions of one kind of pooling at the test points, and their mean squared error."""

    prediction: list[float]
    error: float


@dataclass(frozen=True)
class RegressionJson:
    """Attention as kernel regression: weights are softmax over i of -((x_test - x_i) · w)² / 2."""

    seed: int
    noise: float
    x: list[float]
    y: list[float]
    x_test: list[float]
    y_test: list[float]  # without noise
    average: CurveJson
    fixed: CurveJson  # w = 1
    learned: CurveJson
    chosen: CurveJson  # with chosen_w
    w: float  # learned
    chosen_w: float
    losses: list[float]  # during training of w
    weights_fixed: list[list[float]]  # [x_test][x]
    weights_learned: list[list[float]]
    weights_chosen: list[list[float]]


@dataclass(frozen=True)
class StageJson:
    """One step of the computation: for each token some of its features, and the norm of all of them."""

    name: str
    width: int  # of the full vector
    columns: list[int]  # features included in values; for scores and weights the keys
    values: list[list[float]]  # [token][column]
    norms: list[float]


@dataclass(frozen=True)
class LayerSteps:
    """One encoder layer, step by step, for one sentence.

    Stages are, in this order: token, position, input, normed, query, key, value, scores, weights, mixed, projected,
    attention_sum, attention_out, feed_forward_in, inner, outer, feed_forward_sum, output. Where norms come before
    sub-layers (norm_first), normed and feed_forward_in are normalised and attention_out and output are the sums
    themselves; else normed is the input, and feed_forward_in is attention_out.
    """

    model: str
    text: str
    pieces: list[str]
    layer: int
    head: int
    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    d_ff: int
    norm_first: bool
    scheme: str  # of position encoding
    stages: list[StageJson]
    error: float  # largest difference from the output of the layer itself, relative to its largest value


@dataclass(frozen=True)
class ValidationJson:
    """A validation during a run."""

    step: int
    loss: float
    bleu: float


@dataclass(frozen=True)
class StudyRun:
    """A variant with one seed; a failed run has an error and nothing else."""

    variant: str
    part: str  # of the model that the variant changes
    changes: list[str]
    seed: int
    error: str | None
    parameters: int | None
    tokens_per_second: float | None
    seconds: float | None
    perplexity: float | None  # on the validation set
    bleu: float | None
    curve: list[ValidationJson]


@dataclass(frozen=True)
class Study:
    """All runs so far; variants are in the order of the study, its baseline first."""

    name: str
    measured_on: str  # test or validation: the set of the BLEU scores
    runs: list[StudyRun]
    clear: list[str]  # variants whose BLEU differs significantly from the baseline's (Welch's t-test at 5 %)


@dataclass(frozen=True)
class Studies:
    """The studies of this server."""

    studies: list[Study]


def to_json(value: Any) -> str:
    """Serialise a dataclass, or a list of them; NaN and infinities raise."""
    return json.dumps(value, default=_shallow, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _shallow(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
