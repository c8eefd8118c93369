"""What the page is told about an answer: the shapes of its JSON."""

from dataclasses import dataclass

from regard.serve.view import View, Word


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
