"""Pairs of sentences as the ids that a model reads, what does not fit left out."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.batch import Ids
from regard.decode.translator import Translator


@dataclass(frozen=True)
class Readable:
    """The pairs that a model can read, as texts and as ids; `n_unread` were empty or too long."""

    pairs: list[tuple[str, str]]
    src: list[Ids]
    tgt: list[Ids]
    n_unread: int


def readable(translator: Translator, pairs: Sequence[tuple[str, str]], least: int) -> Readable:
    """Cuts pairs into pieces; a study needs so many of them at least."""
    src = translator.tokenizer.encode_batch([one for one, _ in pairs], "src")
    tgt = translator.tokenizer.encode_batch([other for _, other in pairs], "tgt")
    lengths = [(len(one), len(other)) for one, other in zip(src, tgt, strict=True)]
    fit = [n for n, both in enumerate(lengths) if min(both) > 0 and max(both) <= translator.max_len]
    if len(fit) < least:
        raise ValueError(f"this study needs {least} pairs or more that the model can read, got {len(fit)}")
    return Readable([pairs[n] for n in fit], [src[n] for n in fit], [tgt[n] for n in fit], len(pairs) - len(fit))
