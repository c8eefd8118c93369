"""JSON of everything else."""

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


@dataclass(frozen=True)
class Law:
    """One law of a position scheme, measured; null where there is nothing to measure."""

    name: str  # unique, bounded, deterministic, even_steps, distance_only, symmetric, circles or shift
    tag: str  # number in the specification
    value: float | None
    holds: bool | None


@dataclass(frozen=True)
class Waves:
    """The periods of features that turn in pairs."""

    shortest: float
    longest: float
    geometric: float  # how far they are from a geometric progression; 0 is perfect
    pairs_per_halving: float | None  # a binary counter has 1


@dataclass(frozen=True)
class Cost:
    """Parameters: the scheme's own, and those of the attention layer above it."""

    scheme: int
    layer_added: int
    layer_concatenated: int | None


@dataclass(frozen=True)
class Shift:
    """One linear map that should take the code of every place to that of the place some steps on."""

    steps: int
    exact: bool  # by its formula, or else fitted to all places by least squares
    matrix: list[list[float]]  # moved = matrix · before
    place: int  # the place of the example
    before: list[float]  # its code
    moved: list[float]  # what the map makes of it
    after: list[float]  # the code it should be


@dataclass(frozen=True)
class Positions:
    """One position scheme at one length and width."""

    scheme: str
    schemes: list[str]  # all there are
    door: str  # embed (added to the vectors), rotate (queries and keys), bias (added to scores) or none
    length: int
    width: int
    base: float
    places: list[list[int]]  # of each row of the codes; several numbers on grids and in turns
    codes: list[list[float]]  # [place][feature]; of a bias what each offset adds, [offset][head or feature]
    profile: list[float]  # mean product of two places 0, 1, 2 … steps apart
    laws: list[Law]
    waves: Waves | None
    half_distance: int | None  # first distance at which the product is half of that at 0
    distinct_up_to: int | None  # all codes up to this position differ
    cost: Cost
    shift: Shift | None
    words: list[list[float]]  # random vectors of variance 1 as wide as a code: to add to codes, or to set beside them


@dataclass(frozen=True)
class Curve:
    """One way of pooling: its prediction at each test point, and its mean squared error there."""

    prediction: list[float]
    error: float


@dataclass(frozen=True)
class Regression:
    """Attention as kernel regression: weights are softmax over i of -((x_test - x_i) · w)² / 2."""

    seed: int
    noise: float
    x: list[float]
    y: list[float]
    x_test: list[float]
    y_test: list[float]  # without noise
    average: Curve
    fixed: Curve  # w = 1
    learned: Curve
    chosen: Curve  # with the width that was asked for
    w: float  # that was learned
    chosen_w: float
    losses: list[float]  # while w was learned
    weights_fixed: list[list[float]]  # [x_test][x]
    weights_learned: list[list[float]]
    weights_chosen: list[list[float]]


@dataclass(frozen=True)
class Stage:
    """One step of the computation: for each token some of its numbers, and the norm of all of them."""

    name: str
    width: int  # of the whole vector
    columns: list[int]  # which features are shown; of scores and weights the keys
    values: list[list[float]]  # [token][column]
    norms: list[float]


@dataclass(frozen=True)
class Walk:
    """One sentence through one encoder layer.

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
    scheme: str  # of positions
    stages: list[Stage]
    error: float  # largest difference from what the layer itself puts out, as a share of its largest number


@dataclass(frozen=True)
class Judged:
    """One validation of a run."""

    step: int
    loss: float
    bleu: float


@dataclass(frozen=True)
class StudyRun:
    """One variant with one seed; one that failed says why, and brought nothing else."""

    variant: str
    part: str  # that was exchanged
    changes: list[str]
    seed: int
    error: str | None
    parameters: int | None
    tokens_per_second: float | None
    seconds: float | None
    perplexity: float | None  # of the validation text
    bleu: float | None
    curve: list[Judged]


@dataclass(frozen=True)
class Study:
    """All runs so far; variants stand in the order of the study, its baseline first."""

    name: str
    measured_on: str  # test or validation: what BLEU is of
    runs: list[StudyRun]
    clear: list[str]  # variants whose BLEU differs from the baseline's by more than chance (Welch's t-test at 5 %)


@dataclass(frozen=True)
class Studies:
    """The studies that this server was told of."""

    studies: list[Study]
