"""What the page is told for its lessons: positions, kernel regression, one layer step by step."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Law:
    """One law of a position scheme, measured; null where there is nothing to measure."""

    name: str  # unique, bounded, deterministic, even_steps, distance_only, symmetric, circles or shift
    tag: str  # of the specification, such as S6.1
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
