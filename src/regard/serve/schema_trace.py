"""JSON of a trace."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WordJson:
    """A word, and the indices of its tokens."""

    text: str
    places: list[int]


@dataclass(frozen=True)
class SideJson:
    """The tokens of one side, with ▁ for a space, and the words that they form."""

    pieces: list[str]
    words: list[WordJson]


@dataclass(frozen=True)
class Kind:
    """All heads of one kind of attention.

    `weights` are bytes in the order [layer][head][query][key]: b = round(255·√w), so that w ≈ (b / 255)². They are
    compressed with raw deflate and encoded in base64.
    """

    kind: str  # encoder (source looks at source), decoder (read at read) or cross (read at source)
    n_layers: int
    n_heads: int
    n_queries: int
    n_keys: int
    weights: str
    entropy: list[list[float | None]]  # [layer][head]: 0 for one key, 1 for uniform weights; null: no such head


@dataclass(frozen=True)
class OptionJson:
    """A token that might have followed."""

    piece: str
    log_prob: float


@dataclass(frozen=True)
class StepJson:
    """A token that was written, and its alternatives, most likely first."""

    piece: str
    log_prob: float | None  # in the search
    replayed: float | None  # in the replay by the reference model
    alternatives: list[OptionJson]


@dataclass(frozen=True)
class NodeJson:
    """A token that the search considered, with its parent the token before it."""

    number: int
    parent: int  # the node before, or -1
    step: int  # number of tokens before it
    piece: str
    gain: float | None  # log-probability
    total: float | None  # sum of log-probabilities up to it
    fate: str  # kept, ended, dropped or open


@dataclass(frozen=True)
class Leaf:
    """A final hypothesis of the search, finished or not."""

    node: int
    text: str
    score: float | None  # by which hypotheses are ranked
    log_prob: float | None
    finished: bool


@dataclass(frozen=True)
class TreeJson:
    """The search tree; node i is nodes[i], and parents precede their children."""

    nodes: list[NodeJson]
    best: int  # last node of the best hypothesis; -1 if nothing was written
    best_path: list[int]  # nodes up to it
    leaves: list[Leaf]  # best first


@dataclass(frozen=True)
class ChecksJson:
    """How well the trace agrees with the computation; null if there is nothing to compare."""

    weights: float | None  # largest difference of weights @ v from an attention's output, relative to its largest value
    look: str  # the attention with that difference
    log_prob: float | None  # largest difference of a log-probability between search and replay


@dataclass(frozen=True)
class FlowJson:
    """Norms of the residual stream around a sub-layer, one per token."""

    stack: str  # encoder or decoder
    layer: int
    sublayer: str  # attention, cross_attention or feed_forward
    before: list[float]
    update: list[float]
    after: list[float]


@dataclass(frozen=True)
class Aligning:
    """The cross-attention head, or mean of heads, that was measured to align words best."""

    layer: int | None  # null: all layers
    head: int | None  # null: all heads
    at: str  # say: a row belongs to the token written at that step; read: to the one written a step before


@dataclass(frozen=True)
class Search:
    """How the tokens were chosen."""

    method: str  # greedy, beam or sample
    beam: int
    length_penalty: float


@dataclass(frozen=True)
class View:
    """A trace, ready to be drawn. Row t of decoder and cross attention is from writing target.pieces[t]."""

    id: str | None  # of the cached trace; null in a file
    model: str
    text: str
    output: str
    src_lang: str
    tgt_lang: str
    search: Search
    source: SideJson
    read: SideJson
    target: SideJson
    kinds: list[Kind]
    steps: list[StepJson]
    tree: TreeJson
    leaf: int  # last node of the path that is shown
    part: int  # which part, if the text was too long to be read at once
    n_parts: int
    checks: ChecksJson
    flows: list[FlowJson]
    aligning: Aligning | None  # null if it was not measured


@dataclass(frozen=True)
class Term:
    """A term of the scores."""

    name: str
    values: list[list[float]]


@dataclass(frozen=True)
class HeadJson:
    """The exact numbers of a head, [query][key], to seven digits."""

    kind: str
    layer: int
    head: int
    queries: list[str]
    keys: list[str]
    weights: list[list[float]]
    entropy: list[float]  # per query, in nats
    allowed: list[list[bool]]  # the mask
    scores: list[list[float]] | None  # before the softmax, masked pairs included; null if unknown
    terms: list[Term]  # their sum is the scores
    error: float | None  # of that sum, relative to the largest score


@dataclass(frozen=True)
class Saved:
    """The data of a saved page: traces, and the heads of the first one."""

    views: list[View]
    heads: list[HeadJson]


@dataclass(frozen=True)
class AnswerSpan:
    """A span of the text that may be the answer: characters from start up to stop, and its probability."""

    text: str
    start: int
    stop: int
    probability: float


@dataclass(frozen=True)
class AnswerResponse:
    """A question, its most likely answers, and the trace of the window of the text in which the best was found.

    The places of words are indices into `view.source.pieces`, where the question precedes the text. There is one kind
    of attention, `encoder`.
    """

    reader: str
    question: list[WordJson]
    context: list[WordJson]  # of the window
    answer: list[int]  # indices of its words, from … up to
    whole: bool  # whether the window is the whole text
    stretches: list[AnswerSpan]  # best first
    nowhere: float  # probability that the text has no answer
    view: View


@dataclass(frozen=True)
class Readers:
    """The question answering models of this server."""

    readers: list[str]


@dataclass(frozen=True)
class GeneratedTokenJson:
    """A line of /generate/stream: first the tokens of the prompt, then each generated token."""

    pieces: list[str]
    log_prob: float | None
    looked: list[float]  # attention to the tokens before it, oldest first, averaged over all heads
    done: bool = False
    error: str | None = None


@dataclass(frozen=True)
class Writers:
    """The text generation models of this server."""

    writers: list[str]
