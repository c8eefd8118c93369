"""Sentences of ids become rows of one width, in NumPy: special tokens, padding, and batches of like lengths."""

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain

from regard.shapes import Array, Int, np

PAD, UNK, BOS, EOS = 0, 1, 2, 3

Ids = Sequence[int] | Array  # of whole numbers


def pad(
    sentences: Sequence[Ids], head: Sequence[int] = (), tail: Sequence[int] = (), width: int | None = None
) -> tuple[Int[Array, "B T"], Int[Array, " B"]]:
    """Return each sentence between head and tail, filled up with PAD to the longest or to `width`, and the lengths."""
    extra = len(head) + len(tail)
    lengths = np.array([len(sentence) + extra for sentence in sentences], dtype=np.int64)
    longest = int(lengths.max(initial=0))
    width = longest if width is None else width
    if longest > width:
        raise ValueError(f"a sentence of {longest} ids does not fit a batch {width} wide")
    ids = np.full((len(sentences), width), PAD, dtype=np.int64)
    ids[:, : len(head)] = head
    columns, ends = np.arange(width), lengths[:, None] - len(tail)
    ids[(columns >= len(head)) & (columns < ends)] = np.fromiter(chain.from_iterable(sentences), np.int64)
    np.put_along_axis(ids, ends + np.arange(len(tail)), np.array([tail], dtype=np.int64), axis=1)
    return ids, lengths


def pad_sources(sentences: Sequence[Ids]) -> tuple[array, array, int]:
    """Return source sentences as every model reads them, each closed by EOS: rows of one width, and their lengths.

    `pad(sentences, tail=[EOS])` is the same; here nothing waits for NumPy.
    """
    lengths = array("q", [len(sentence) + 1 for sentence in sentences])
    width = max(lengths, default=0)
    ids = array("q")
    for sentence, length in zip(sentences, lengths, strict=True):
        ids.extend(sentence)
        ids.extend([EOS, *[PAD] * (width - length)])
    return ids, lengths, width


def length_sorted(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Group sentences of like lengths, longest first, into batches of so many tokens with their padding, or of one."""
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens must be 1 or more, got {batch_tokens}")
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    while order:
        n = max(1, batch_tokens // lengths[order[0]])
        yield order[:n]
        order = order[n:]
