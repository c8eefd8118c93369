"""Per word: what it attended to, by which heads."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.normalise import UNSPACED
from regard.trace.attention import mean_relative_entropy
from regard.trace.trace import OutputToken, Trace, TraceChecks

MARK = "▁"  # SentencePiece's sign for the space before a piece
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
SPECIAL = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class WordTokens:
    """A word, and the places of the pieces that it is made of."""

    text: str
    indices: tuple[int, ...]


def group_words(tokens: Sequence[str]) -> list[WordTokens]:
    """Set pieces together to words.

    A mark begins a word. Between pieces without one there is a border where Chinese and its like stands on either side,
    and before signs that close a word; signs inside one, as in Xi'an, belong to it. Bytes of a character stay together.
    """
    groups: list[list[int]] = []
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else ""
        after = tokens[index + 1] if index + 1 < len(tokens) else ""
        if groups and not _begins_word(before, token, after):
            groups[-1].append(index)
        else:
            groups.append([index])
    return [WordTokens(_text([tokens[i] for i in group]), tuple(group)) for group in groups]


def _begins_word(before: str, token: str, after: str) -> bool:
    """Return whether a word begins with this piece."""
    if before == MARK:
        return False  # a space by itself goes with what follows
    if BYTE.fullmatch(before) and BYTE.fullmatch(token):
        return _begins_character(token)
    if token.startswith(MARK) or SPECIAL.fullmatch(token) or SPECIAL.fullmatch(before):
        return True
    if UNSPACED.match(token[:1]) or UNSPACED.match(before[-1:]):
        return True
    if token[:1].isalnum():
        return not (before[-1:].isalnum() or _joins_word(before, token))
    return not _joins_word(token, after)


def _joins_word(sign: str, after: str) -> bool:
    """Return whether a sign stands inside a word: one that is followed by a letter without a space."""
    joins = sign.strip(MARK) in {"'", "’", "-", "‐", "_", ".", "@", "/"}
    return joins and after[:1].isalnum() and not UNSPACED.match(after[:1])


def _begins_character(token: str) -> bool:
    """Return whether a byte is the first of a character in UTF-8."""
    match = BYTE.fullmatch(token)
    return match is not None and int(match[1], 16) & 0xC0 != 0x80


def _text(tokens: Sequence[str]) -> str:
    if all(BYTE.fullmatch(token) for token in tokens):
        return bytes(int(BYTE.fullmatch(token)[1], 16) for token in tokens).decode("utf-8", "replace")  # pyright: ignore
    return "".join(tokens).replace(MARK, " ").strip() or "␣"


# A row of the weights belongs to the token that the decoder says there, or to the one that it reads there, which it
# said a step before. Which of the two aligns better differs from head to head (Chen et al. 2020, arXiv:2004.14837).
At = Literal["say", "read"]
ATS: tuple[At, At] = ("say", "read")
NAME = re.compile(r"cross(?::(\d+|all))?(?::(\d+|all))?(?::(say|read))?")
HINT = "cross:LAYER:HEAD, such as cross:1:3, with `all` for a mean and :say or :read behind it"


@dataclass(frozen=True)
class HeadChoice:
    """One head, the mean of a layer's heads (no head), or of all heads (no layer), and whose token a row is."""

    layer: int | None
    head: int | None
    at: At

    def __str__(self) -> str:
        return f"cross:{_or_all(self.layer)}:{_or_all(self.head)}:{self.at}"


ALL_HEADS = HeadChoice(None, None, "say")


def all_choices(n_layers: int, n_heads: int) -> list[HeadChoice]:
    """List every head, the mean of each layer and the mean of all, each in both ways."""
    heads = [(layer, head) for layer in range(n_layers) for head in (*range(n_heads), None)]
    return [HeadChoice(*index, at) for index in (*heads, (None, None)) for at in ATS]


def named_choices(name: str, sizes: tuple[int, int]) -> list[HeadChoice]:
    """Return the choices that a name means: one, or two where it does not say whose token a row is."""
    match = NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"heads must be named {HINT}, got {name!r}")
    layer, head = (None if part in {None, "all"} else int(part) for part in match.group(1, 2))
    if layer is None and head is not None:
        raise ValueError(f"a head must be one of one layer, got {name!r}: {HINT}")
    for what, number, n in (("layer", layer, sizes[0]), ("head", head, sizes[1])):
        if number is not None and number >= n:
            raise ValueError(f"the {what} of cross attention must lie in 0 … {n - 1}, got {number} in {name!r}")
    ats: Sequence[At] = ATS if match[3] is None else [at for at in ATS if at == match[3]]
    return [HeadChoice(layer, head, at) for at in ats]


def _or_all(number: int | None) -> str:
    return "all" if number is None else str(number)


MOST = 3  # words named for each word


@dataclass(frozen=True)
class WordShare:
    """A word that was looked at, and how much of the look it had."""

    word: str
    share: float


@dataclass(frozen=True, eq=False)
class WordAttention:
    """What each output word looked at: for each source word its share, by the heads that are named.

    Of a model that reads no source, the words it looked at are those it had written, their beginning among them. The
    pieces of a source word are added, those of an output word averaged. The end of the sentence says nothing and is
    no word of the output.
    """

    heads: str

    output: list[WordTokens]
    source: list[WordTokens]
    shares: Float[Tensor, "T S"]


@dataclass(frozen=True)
class OutputWord:
    """An output word, its log-probability, and what it looked at most."""

    word: str
    log_prob: float
    looked_at: list[WordShare]


@dataclass(frozen=True)
class LayerEntropies:
    """How spread out the heads of one layer look: 0 is one key, 1 is all that are allowed alike."""

    kind: str
    layer: int
    heads: list[float]


@dataclass(frozen=True)
class TraceSummary:
    """A trace in a few words and numbers."""

    text: str
    output: str
    source: tuple[str, ...]
    heads: str  # that the words looked with
    words: list[OutputWord]
    steps: tuple[OutputToken, ...]
    spread: list[LayerEntropies]
    checks: TraceChecks


def summarise(trace: Trace, choice: HeadChoice = ALL_HEADS) -> TraceSummary:
    """Look through a whole trace, one head after another; words look with the heads that are chosen."""
    spread = [
        LayerEntropies(attention_map.kind, attention_map.layer, mean_relative_entropy(attention_map).tolist())
        for attention_map in trace.attention
    ]
    looked = word_attention(trace, choice) if trace.cross or trace.decoder else None
    words = [] if looked is None else _output_words(trace, looked)
    about = trace.text, trace.output, trace.source, str(choice) if looked is None else looked.heads
    return TraceSummary(*about, words, trace.steps, spread, trace.check())


def word_attention(trace: Trace, choice: HeadChoice = ALL_HEADS) -> WordAttention:
    """Return what each output word looked at: across at the source, or back where there is none."""
    return cross_word_attention(trace, choice) if trace.cross or not trace.decoder else self_word_attention(trace)


def cross_word_attention(trace: Trace, choice: HeadChoice = ALL_HEADS) -> WordAttention:
    """Return which source words the chosen heads attended to when each output word was written.

    Rows are never shifted, also where the heads align words better by the row in which a word is read.
    """
    if not trace.cross:
        raise ValueError(f"looking across needs cross attention, and {trace} has none: see its other looks")
    attention_maps = trace.cross if choice.layer is None else [trace.attention_map("cross", choice.layer)]
    each = [
        attention_map.weights().mean(0) if choice.head is None else attention_map.weights(choice.head)
        for attention_map in attention_maps
    ]
    return _by_words(trace, torch.stack(each).mean(0), trace.source, str(replace(choice, at="say")))


def self_word_attention(trace: Trace) -> WordAttention:
    """Return what each output word looked at of what was written before it, by all heads of the decoder."""
    weights = torch.stack([attention_map.weights().mean(0) for attention_map in trace.decoder]).mean(0)
    return _by_words(trace, weights, trace.read, "decoder:all:all")


def _by_words(trace: Trace, weights: Float[Tensor, "T S"], seen: tuple[str, ...], heads: str) -> WordAttention:
    written = trace.target[:-1] if trace.target[-1:] == ("</s>",) else trace.target
    output, source = group_words(written), group_words(seen)
    return WordAttention(heads, output, source, merge_words(weights, output, source))


def merge_words(
    weights: Float[Tensor, "*H Q K"], rows: Sequence[WordTokens], columns: Sequence[WordTokens]
) -> Float[Tensor, "*H _ _"]:
    """Return weights between words: the tokens of a column's word are added, those of a row's averaged."""
    by_column = torch.stack([weights[..., list(word.indices)].sum(-1) for word in columns], dim=-1)
    if not rows:
        return by_column[..., :0, :]
    return torch.stack([by_column[..., list(word.indices), :].mean(-2) for word in rows], dim=-2)


def _output_words(trace: Trace, seen: WordAttention) -> list[OutputWord]:
    words = []
    for word, row in zip(seen.output, seen.shares, strict=True):
        shares, indices = row.topk(min(MOST, len(row)))
        named = zip(indices.tolist(), shares.tolist(), strict=True)
        at = [WordShare(seen.source[index].text, share) for index, share in named]
        words.append(OutputWord(word.text, sum(trace.steps[i].log_prob for i in word.indices), at))
    return words
