"""JSON of a trace."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    """A word, and the places of its pieces."""

    text: str
    places: list[int]


@dataclass(frozen=True)
class Side:
    """The pieces of one side, ▁ where a space stood, and the words that they make."""

    pieces: list[str]
    words: list[Word]


@dataclass(frozen=True)
class Kind:
    """All heads of one kind of attention.

    `weights` are bytes, layer by layer, head by head, query by query, key by key: round(255·√w), so that w is
    (b / 255)². They are packed by raw deflate and written in base64.
    """

    kind: str  # encoder (source looks at source), decoder (read at read) or cross (read at source)
    n_layers: int
    n_heads: int
    n_queries: int
    n_keys: int
    weights: str
    entropy: list[list[float | None]]  # [layer][head]: 0 looks at one key, 1 at all alike; null: no such head


@dataclass(frozen=True)
class Option:
    """One piece that might have followed."""

    piece: str
    log_prob: float


@dataclass(frozen=True)
class Step:
    """One piece that was said, and what might have been said in its place, likeliest first."""

    piece: str
    log_prob: float | None  # as the search had it
    replayed: float | None  # as the plain model has it
    alternatives: list[Option]


@dataclass(frozen=True)
class Node:
    """One piece that the search was offered after those before it."""

    number: int
    parent: int  # the node before, or -1
    step: int  # pieces before it
    piece: str
    gain: float | None  # its log-probability
    total: float | None  # and that of all up to it
    fate: str  # kept, ended, dropped or open


@dataclass(frozen=True)
class Leaf:
    """A hypothesis that the search ended with, finished or not."""

    node: int
    text: str
    score: float | None  # by which hypotheses compare
    log_prob: float | None
    finished: bool


@dataclass(frozen=True)
class Tree:
    """Everything that the search thought of; node i is nodes[i], and parents stand before their children."""

    nodes: list[Node]
    best: int  # where the best hypothesis ends; -1 where nothing was written
    best_path: list[int]  # the nodes up to it
    leaves: list[Leaf]  # the best first


@dataclass(frozen=True)
class Checks:
    """How well what is shown agrees with what was computed; null where there is nothing to compare with."""

    weights: float | None  # largest difference of weights @ v from an attention's output, as a share of its largest
    look: str  # where that is
    log_prob: float | None  # largest difference of a log-probability in the search and in the replay


@dataclass(frozen=True)
class Flow:
    """The norms of the residual stream around one sub-layer, one number for each token."""

    stack: str  # encoder or decoder
    layer: int
    sublayer: str  # attention, cross_attention or feed_forward
    before: list[float]
    update: list[float]
    after: list[float]


@dataclass(frozen=True)
class Aligning:
    """The head of cross attention whose weights were measured to link words best, or a mean of heads."""

    layer: int | None  # null: all layers
    head: int | None  # null: all heads
    at: str  # say: a row belongs to the piece that is said there; read: to the one that was said a step before


@dataclass(frozen=True)
class Search:
    """How the pieces were chosen."""

    method: str  # greedy, beam or sample
    beam: int
    length_penalty: float


@dataclass(frozen=True)
class View:
    """One run, ready to be drawn. Row t of decoder and cross attention is read.pieces[t], and says target.pieces[t]."""

    id: str | None  # by which the server knows the run; null in a file
    model: str
    text: str
    output: str
    src_lang: str
    tgt_lang: str
    search: Search
    source: Side
    read: Side
    target: Side
    kinds: list[Kind]
    steps: list[Step]
    tree: Tree
    leaf: int  # the node of the tree whose path this is
    part: int  # which part of a text that was too long to be read at once
    n_parts: int
    checks: Checks
    flows: list[Flow]
    aligning: Aligning | None  # null where nobody measured it


@dataclass(frozen=True)
class Term:
    """One of the terms that scores are sums of."""

    name: str
    values: list[list[float]]


@dataclass(frozen=True)
class Head:
    """One head with its numbers, [query][key], to seven digits."""

    kind: str
    layer: int
    head: int
    queries: list[str]
    keys: list[str]
    weights: list[list[float]]
    entropy: list[float]  # of each query, in nats
    allowed: list[list[bool]]  # who may look at whom
    scores: list[list[float]] | None  # before the softmax, of forbidden pairs too; null where they are not known
    terms: list[Term]  # which add up to the scores
    error: float | None  # by how much they do not, as a share of the largest score


@dataclass(frozen=True)
class Saved:
    """What lies inside a saved page: runs, and heads of the first of them."""

    views: list[View]
    heads: list[Head]


@dataclass(frozen=True)
class Stretch:
    """A stretch of the text that may answer: its characters from … up to, and its share of all stretches."""

    text: str
    start: int
    stop: int
    probability: float


@dataclass(frozen=True)
class Answered:
    """A question, its likeliest answers, and the reading that found the best: one window of the text.

    The places of words are pieces of `view.source`, where the question stands before the text. Attention is of one
    kind, `encoder`.
    """

    reader: str
    question: list[Word]
    context: list[Word]  # of the window
    answer: list[int]  # its words that answer, from … up to
    whole: bool  # the window is the whole text
    stretches: list[Stretch]  # best first
    nowhere: float  # the chance that the text has no answer
    view: View


@dataclass(frozen=True)
class Readers:
    """The readers that this server was told of."""

    readers: list[str]


@dataclass(frozen=True)
class WrotePiece:
    """One line of the stream: the prompt's pieces first, then each piece as it is written."""

    pieces: list[str]
    log_prob: float | None
    looked: list[float]  # mean weights of all heads on the pieces before it, the last being that of the newest
    done: bool = False
    error: str | None = None


@dataclass(frozen=True)
class Writers:
    """The writers that this server was told of."""

    writers: list[str]
