"""Running text between two of its characters, and its pieces."""

from collections.abc import Iterator
from dataclasses import dataclass

from regard.text.documents import read_running
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Part:
    """The characters of a file from one place up to another."""

    source: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def measured(source: str) -> int:
    """Counts the characters of a file."""
    return sum(len(block) for block in read_running(source))


def text_of(part: Part) -> Iterator[str]:
    """Gives the text of a part, block by block."""
    at = 0
    for block in read_running(part.source):
        if text := block[max(0, part.start - at) : max(0, part.stop - at)]:
            yield text
        at += len(block)


def lines_of(part: Part) -> Iterator[str]:
    """Gives the lines of a part; a line feed alone ends one."""
    rest = ""
    for block in text_of(part):
        *lines, rest = (rest + block).split("\n")
        yield from lines
    yield rest


def encoded(part: Part, tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Gives the ids of a part, some at a time: characters as they come, other pieces line by line without line ends."""
    if tokenizer.exact:
        return (tokenizer.encode(block, "tgt") for block in text_of(part))
    return (tokenizer.encode(line, "tgt") for line in lines_of(part))
