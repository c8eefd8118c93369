"""What a person wants to know of a trace at first sight."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.trace.choice import ALL_HEADS, Choice
from regard.trace.look import Look
from regard.trace.trace import Checks, Step, Trace
from regard.trace.words import Word, group_words

MOST = 3  # words named for each word


@dataclass(frozen=True, eq=False)
class LookedAt:
    """What each output word looked at: for each source word its share, by the heads that are named.

    Of a model that reads no source, the words it looked at are those it had written, their beginning among them. The
    pieces of a source word are added, those of an output word averaged. The end of the sentence says nothing and is
    no word of the output.
    """

    heads: str

    output: list[Word]
    source: list[Word]
    shares: Float[Tensor, "T S"]


@dataclass(frozen=True)
class Share:
    """A word that was looked at, and how much of the look it had."""

    word: str
    share: float


@dataclass(frozen=True)
class Spoken:
    """An output word, its log-probability, and what it looked at most."""

    word: str
    log_prob: float
    looked_at: list[Share]


@dataclass(frozen=True)
class Spread:
    """How spread out the heads of one layer look: 0 is one key, 1 is all that are allowed alike."""

    kind: str
    layer: int
    heads: list[float]


@dataclass(frozen=True)
class Summary:
    """A trace in a few words and numbers."""

    text: str
    output: str
    source: tuple[str, ...]
    heads: str  # that the words looked with
    words: list[Spoken]
    steps: tuple[Step, ...]
    spread: list[Spread]
    checks: Checks


def summarise(trace: Trace, choice: Choice = ALL_HEADS) -> Summary:
    """Looks through a whole trace, one head after another; words look with the heads that are chosen."""
    spread = [Spread(look.kind, look.layer, relative_entropy(look).tolist()) for look in trace.looks]
    looked = looked_at(trace, choice) if trace.cross or trace.decoder else None
    words = [] if looked is None else _spoken(trace, looked)
    about = trace.text, trace.output, trace.source, str(choice) if looked is None else looked.heads
    return Summary(*about, words, trace.steps, spread, trace.check())


def looked_at(trace: Trace, choice: Choice = ALL_HEADS) -> LookedAt:
    """Gives what each output word looked at: across at the source, or back where there is none."""
    return look_across(trace, choice) if trace.cross or not trace.decoder else look_back(trace)


def look_across(trace: Trace, choice: Choice = ALL_HEADS) -> LookedAt:
    """Gives what each output word looked at."""
    if not trace.cross:
        raise ValueError(f"looking across needs cross attention, and {trace} has none: see its other looks")
    return _by_words(trace, _weights(trace, choice), trace.source, str(choice))


def look_back(trace: Trace) -> LookedAt:
    """Gives what each output word looked at of what was written before it, by all heads of the decoder."""
    weights = torch.stack([look.weights().mean(0) for look in trace.decoder]).mean(0)
    return _by_words(trace, weights, trace.read, "decoder:all:all")


def _by_words(trace: Trace, weights: Float[Tensor, "T S"], seen: tuple[str, ...], heads: str) -> LookedAt:
    said = trace.target[:-1] if trace.target[-1:] == ("</s>",) else trace.target
    output, source = group_words(said), group_words(seen)
    by_source = torch.stack([weights[:, list(word.places)].sum(1) for word in source], dim=1)
    rows = [by_source[list(word.places)].mean(0) for word in output]
    return LookedAt(heads, output, source, torch.stack(rows) if rows else by_source[:0])


def _weights(trace: Trace, choice: Choice) -> Float[Tensor, "T S"]:
    """Gives what each token looked at by some heads; the last one was never read where the model did not end."""
    looks = trace.cross if choice.layer is None else [trace.look("cross", choice.layer)]
    each = [look.weights().mean(0) if choice.head is None else look.weights(choice.head) for look in looks]
    rows = torch.stack(each).mean(0)
    return rows if choice.at == "say" else torch.cat([rows[1:], rows[-1:]])


def relative_entropy(look: Look) -> Float[Tensor, " H"]:
    """Gives each head's mean entropy as a share of the largest there can be, over queries with a choice."""
    shares = []
    for head in range(look.n_heads):
        counts = look.allowed(head).sum(-1)
        most = counts.clamp(min=2).to(torch.float64).log()
        free = counts > 1
        shares.append((look.entropy(head)[free] / most[free]).mean() if free.any() else most.new_zeros(()))
    return torch.stack(shares)


def _spoken(trace: Trace, seen: LookedAt) -> list[Spoken]:
    words = []
    for word, row in zip(seen.output, seen.shares, strict=True):
        shares, places = row.topk(min(MOST, len(row)))
        named = zip(places.tolist(), shares.tolist(), strict=True)
        at = [Share(seen.source[place].text, share) for place, share in named]
        words.append(Spoken(word.text, sum(trace.steps[i].log_prob for i in word.places), at))
    return words
