"""Which words of given sentence pairs belong together, read from cross attention."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from regard.align.heads import (
    RankedHeads,
    SoftLinks,
    choose_by_gold,
    choose_by_leave_one_out,
    choose_by_reverse,
    leave_one_out,
)
from regard.align.links import (
    SYMMETRISE,
    AlignmentScore,
    Gold,
    Link,
    SegmentedPair,
    check_gold,
    score_alignment,
    segment_pair,
    soft_links,
    to_source,
    to_target,
    to_words,
)
from regard.config import choose
from regard.data.normalise import language_code
from regard.model import Seq2Seq
from regard.pipeline.translator import Translator
from regard.shapes import Float
from regard.trace.head_ablation import ProgressBar, find_heads, no_progress, plain_copy
from regard.trace.head_choice import HeadChoice, all_choices, named_choices

MEASURED = 1000  # pairs on which heads are chosen, where there are so many
NEEDED = 100  # the same where each takes as many passes as it has words
WINDOW = 200  # pairs that are read at once: enough for full batches, few enough for a bar to move

GIVEN = "as told"


@dataclass(frozen=True)
class AlignedPair:
    """The words of a pair, and which of them belong together: numbers of a source and a target word, from 0."""

    src: list[str]
    tgt: list[str]
    links: list[Link]


@dataclass(frozen=True)
class Alignment:
    """Aligned pairs, the heads that were asked, and how near the links are to gold ones where there are any."""

    pairs: list[AlignedPair]
    forward: RankedHeads
    backward: RankedHeads | None
    symmetrise: str
    score: AlignmentScore | None
    n_unread: int  # pairs without links, since a side is empty or longer than a model reads


def align(
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    reverse: Translator | None = None,
    gold: Sequence[Gold] | None = None,
    heads: Sequence[str] = (),
    units: str = "characters",
    symmetrise: str = "grow-diag-final-and",
    bar: ProgressBar = no_progress,
) -> Alignment:
    """Align the words of sentences with those of their given translations, under teacher forcing.

    A model and its reverse look from either side; what both look at counts (the geometric mean of their weights).
    Each word is linked to its best partner, in both directions, and the two are joined by `symmetrise`. `heads` names
    those of the model and of its reverse; heads that are not named are chosen by measurement on the pairs.
    """
    join = choose(SYMMETRISE, symmetrise, "way to symmetrise")
    sides = [translator] if reverse is None else [translator, reverse]
    _check_languages(sides)
    reads = [segment_pair(pair, sides, units) for pair in pairs]
    _check_gold(reads, gold)
    models = [plain_copy(side.model) for side in sides]
    chosen, seen = _choose_heads(models, reads, gold, heads, bar)
    choices = [_named(model, each.heads) for model, each in zip(models, chosen, strict=True)]
    links = [
        set() if matrix is None else join(_links(read, to_source(matrix)), _links(read, to_target(matrix)))
        for read, matrix in bar(word_weights(models, reads, choices, seen), len(reads), "aligning")
    ]
    score = None if gold is None else score_alignment(links, gold)
    found = [
        AlignedPair(r.src.sentence.words, r.tgt.sentence.words, sorted(each))
        for r, each in zip(reads, links, strict=True)
    ]
    backward = chosen[1] if reverse is not None else None
    return Alignment(found, chosen[0], backward, symmetrise, score, sum(not read.tokenized for read in reads))


def pair_weights(
    translator: Translator, pair: tuple[str, str], reverse: Translator | None, heads: Sequence[str], units: str
) -> Float[Tensor, "T S"]:
    """Return the weights from which one pair's links are made, for each target word and each source word."""
    sides = [translator] if reverse is None else [translator, reverse]
    models, read = [plain_copy(side.model) for side in sides], segment_pair(pair, sides, units)
    choices = [_named(model, name) for model, name in zip(models, heads, strict=True)]
    ((_, weights),) = word_weights(models, [read], choices, {})
    if weights is None:
        raise ValueError(f"a pair must have words, and no more than the models read, got {pair}")
    return to_words(read, weights)


def word_weights(
    models: Sequence[Seq2Seq],
    reads: Sequence[SegmentedPair],
    choices: Sequence[list[HeadChoice]],
    seen: Mapping[int, Tensor],
) -> Iterator[tuple[SegmentedPair, Float[Tensor, "t s"] | None]]:
    """Return each pair in its order, and how much each target group and each source group belong together.

    What was already seen of a pair is not computed again.
    """
    for first in range(0, len(reads), WINDOW):
        window = range(first, min(first + WINDOW, len(reads)))
        places = [place for place in window if reads[place].tokenized and place not in seen]
        some = [reads[place] for place in places]
        softs = [_soft_links(model, side, some, choices[side]) for side, model in enumerate(models)]
        found = {place: _mean([soft[0] for soft in both]) for place, *both in zip(places, *softs, strict=True)}
        for place in window:
            yield reads[place], seen.get(place, found.get(place))


def _mean(both: Sequence[Float[Tensor, "t s"]]) -> Float[Tensor, "t s"]:
    """Return the geometric mean of what the models see: both must look."""
    return torch.stack(list(both)).prod(0) ** (1 / len(both))


def _soft_links(model: Seq2Seq, side: int, reads: Sequence[SegmentedPair], choices: Sequence[HeadChoice]) -> SoftLinks:
    """Return what one model sees in pairs that it can read; the reverse model's matrices are turned."""
    found = dict(soft_links(model, [read.tokenized[side] for read in reads], choices))
    return [found[place].transpose(1, 2) if side else found[place] for place in range(len(reads))]


def _choose_heads(
    models: Sequence[Seq2Seq],
    reads: Sequence[SegmentedPair],
    gold: Sequence[Gold] | None,
    heads: Sequence[str],
    bar: ProgressBar,
) -> tuple[list[RankedHeads], dict[int, Tensor]]:
    """Choose among the heads that are meant, all where none are named; return also what they saw of some pairs."""
    if len(heads) > len(models):
        raise ValueError(
            f"heads must be named for each model, of which there are {len(models)}, got {', '.join(heads)}"
        )
    names = [*heads, *[""] * len(models)]
    choices = [_named(model, name) for model, name in zip(models, names, strict=False)]
    if all(len(each) == 1 for each in choices):
        return [RankedHeads(str(only), GIVEN, 0, []) for (only,) in choices], {}
    most = len(reads) if gold is not None else MEASURED if len(models) == 2 else NEEDED
    places = [place for place, read in enumerate(reads) if read.tokenized][:most]
    if not places:
        raise ValueError(f"heads are chosen on pairs that the models can read, got 0 of {len(reads)}: name some heads")
    some, sides = [reads[place] for place in places], enumerate(models)
    softs = [
        _soft_links(model, side, some, choices[side]) for side, model in bar(sides, len(models), "measuring heads")
    ]
    if gold is not None:
        chosen = choose_by_gold(some, softs, choices, [gold[place] for place in places])
    elif len(models) == 2:
        chosen = choose_by_reverse(softs, choices)
    else:
        chosen = choose_by_leave_one_out(
            softs[0], choices[0], leave_one_out(models[0], [read.tokenized[0] for read in some])
        )
    best = [[str(choice) for choice in each].index(one.heads) for each, one in zip(choices, chosen, strict=True)]
    seen = [[soft[at] for soft, at in zip(both, best, strict=True)] for both in zip(*softs, strict=True)]
    return chosen, dict(zip(places, map(_mean, seen), strict=True))


def _named(model: Seq2Seq, name: str) -> list[HeadChoice]:
    cross = [place for place in find_heads(model) if place.kind == "cross"]
    sizes = len(cross), cross[0].n_heads
    return named_choices(name, sizes) if name else all_choices(*sizes)


def _links(read: SegmentedPair, links: Tensor) -> set[Link]:
    return {(i, j) for j, i in to_words(read, links).nonzero().tolist()}


def _check_gold(reads: Sequence[SegmentedPair], gold: Sequence[Gold] | None) -> None:
    if gold is None:
        return
    if len(gold) != len(reads):
        raise ValueError(f"there must be one line of gold links for each pair, got {len(gold)} for {len(reads)}")
    for number, (read, each) in enumerate(zip(reads, gold, strict=True), start=1):
        if not isinstance(each, Gold):
            way_out = "regard.align.links.read_gold makes them of lines"
            raise ValueError(f"gold links of pair {number} must be Gold(sure, possible), got {each!r:.60}: {way_out}")
        check_gold(each, len(read.src.sentence.spans), len(read.tgt.sentence.spans), f"gold links of pair {number}")


def _check_languages(sides: Sequence[Translator]) -> None:
    """Raise ValueError where the second model does not translate back what the first translates."""
    (src, tgt), *others = [(language_code(side.src_lang), language_code(side.tgt_lang)) for side in sides]
    for back, to in others:
        if (back, to) != (tgt, src):
            raise ValueError(f"the reverse of a model {src} → {tgt} must be one {tgt} → {src}, got {back} → {to}")


class _CallableAlign(ModuleType):
    """`regard.align` is this room, and the verb that users call."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return align(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableAlign
