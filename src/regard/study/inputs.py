"""The sentence pairs that a study of a model reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.padding import Ids
from regard.pipeline.translator import Translator

TEXT = Path(__file__).with_name("sentences.tsv")
LANGUAGES = ("zh", "en")


def bundled_pairs(src_lang: str, tgt_lang: str) -> list[tuple[str, str]]:
    """Return everyday sentences in Chinese and English, written for this purpose, source first."""
    lines = [line.split("\t") for line in TEXT.read_text(encoding="utf-8").splitlines()]
    if (src_lang, tgt_lang) == LANGUAGES:
        return [(chinese, english) for chinese, english in lines]
    if (tgt_lang, src_lang) == LANGUAGES:
        return [(english, chinese) for chinese, english in lines]
    raise ValueError(
        f"the bundled sentences are Chinese and English, and the model translates {src_lang} to {tgt_lang}: "
        "give a text with --data"
    )


@dataclass(frozen=True)
class EncodedPairs:
    """The pairs that a model can read, as texts and as ids; `n_unread` others were empty or too long."""

    pairs: list[tuple[str, str]]
    src: list[Ids]
    tgt: list[Ids]
    n_unread: int


def encode_pairs(translator: Translator, pairs: Sequence[tuple[str, str]], least: int) -> EncodedPairs:
    """Tokenize the pairs that the model can read; raise ValueError where they are fewer than a study needs."""
    src = translator.tokenizer.encode_batch([one for one, _ in pairs], "src")
    tgt = translator.tokenizer.encode_batch([other for _, other in pairs], "tgt")
    lengths = [(len(one), len(other)) for one, other in zip(src, tgt, strict=True)]
    fit = [n for n, both in enumerate(lengths) if min(both) > 0 and max(both) <= translator.max_len]
    if len(fit) < least:
        raise ValueError(f"this study needs {least} pairs or more that the model can read, got {len(fit)}")
    return EncodedPairs([pairs[n] for n in fit], [src[n] for n in fit], [tgt[n] for n in fit], len(pairs) - len(fit))
