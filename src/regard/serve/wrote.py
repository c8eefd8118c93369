"""What the page is told while a text is written: the shapes of its JSON."""

from dataclasses import dataclass


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
