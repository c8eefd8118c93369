"""Per word: what it attended to, by which heads."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.data.normalise import is_unspaced
from regard.shapes import Float
from regard.trace.attention_map import AttentionMap, as_array, mean_relative_entropy
from regard.trace.head_choice import ALL_HEADS, HeadChoice
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
    if is_unspaced(token) or is_unspaced(before[-1:]):
        return True
    if token[:1].isalnum():
        return not (before[-1:].isalnum() or _joins_word(before, token))
    return not _joins_word(token, after)


def _joins_word(sign: str, after: str) -> bool:
    """Return whether a sign stands inside a word: one that is followed by a letter without a space."""
    joins = sign.strip(MARK) in {"'", "’", "-", "‐", "_", ".", "@", "/"}
    return joins and after[:1].isalnum() and not is_unspaced(after)


def _begins_character(token: str) -> bool:
    """Return whether a byte is the first of a character in UTF-8."""
    match = BYTE.fullmatch(token)
    return match is not None and int(match[1], 16) & 0xC0 != 0x80


def _text(tokens: Sequence[str]) -> str:
    if all(BYTE.fullmatch(token) for token in tokens):
        return bytes(int(BYTE.fullmatch(token)[1], 16) for token in tokens).decode("utf-8", "replace")  # pyright: ignore
    return "".join(tokens).replace(MARK, " ").strip() or "␣"


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
    shares: Float[np.ndarray, "T S"]


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
    return _by_words(trace, _mean_weights(attention_maps, choice.head), trace.source, str(replace(choice, at="say")))


def self_word_attention(trace: Trace) -> WordAttention:
    """Return what each output word looked at of what was written before it, by all heads of the decoder."""
    return _by_words(trace, _mean_weights(trace.decoder, None), trace.read, "decoder:all:all")


def _mean_weights(attention_maps: Sequence[AttentionMap], head: int | None) -> Float[np.ndarray, "T S"]:
    """Return the mean over layers of the weights of one head, or of all."""
    layers = [as_array(attention_map.weights(head)) for attention_map in attention_maps]
    return np.mean(layers if head is not None else [weights.mean(0) for weights in layers], axis=0)


def _by_words(trace: Trace, weights: Float[np.ndarray, "T S"], seen: tuple[str, ...], heads: str) -> WordAttention:
    written = trace.target[:-1] if trace.target[-1:] == ("</s>",) else trace.target
    output, source = group_words(written), group_words(seen)
    return WordAttention(heads, output, source, merge_words(weights, output, source))


def merge_words(
    weights: Float[np.ndarray, "*H Q K"], rows: Sequence[WordTokens], columns: Sequence[WordTokens]
) -> Float[np.ndarray, "*H _ _"]:
    """Return weights between words: the tokens of a column's word are added, those of a row's averaged."""
    by_column = np.stack([weights[..., list(word.indices)].sum(-1) for word in columns], axis=-1)
    if not rows:
        return by_column[..., :0, :]
    return np.stack([by_column[..., list(word.indices), :].mean(-2) for word in rows], axis=-2)


def _output_words(trace: Trace, seen: WordAttention) -> list[OutputWord]:
    words = []
    for word, row in zip(seen.output, seen.shares, strict=True):
        most = np.argsort(-row, kind="stable")[:MOST].tolist()
        at = [WordShare(seen.source[index].text, float(row[index])) for index in most]
        words.append(OutputWord(word.text, sum(trace.steps[i].log_prob for i in word.indices), at))
    return words
