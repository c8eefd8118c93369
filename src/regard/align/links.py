"""Words and their tokens, the links between two sides: soft links, agreement, symmetrisation, AER."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from regard.batch import Batch, make_batch
from regard.config import choose
from regard.data.tokenizer import Side
from regard.data.words import Sentence, Span, join_words, split_pieces, split_words
from regard.model import Seq2Seq
from regard.padding import length_sorted
from regard.pipeline.translator import Translator
from regard.shapes import Bool, Float, Shaped
from regard.trace.head_ablation import attention_maps
from regard.trace.head_choice import ATS, HeadChoice


def word_groups(words: Sequence[Span], pieces: Iterable[Span]) -> list[range]:
    """Return the fewest words that must stay together, in their order: no piece reaches from one range into the next.

    Pieces may be those of several tokenizers.
    """
    starts = [start for start, _ in words]
    inside = {border for piece in pieces for border in range(*_reach(starts, piece))}
    borders = [border for border in range(1, len(words)) if border - 1 not in inside]
    return [range(*ends) for ends in pairwise([0, *borders, len(words)])] if words else []


def group_of_tokens(groups: Sequence[range], words: Sequence[Span], pieces: Iterable[Span]) -> list[int]:
    """Return for each piece the group that it is part of."""
    starts = [words[group.start][0] for group in groups]
    return [_at(starts, start) for start, _ in pieces]


def _reach(starts: Sequence[int], piece: Span) -> tuple[int, int]:
    """Return the first and the last word of a piece."""
    return _at(starts, piece[0]), _at(starts, piece[1] - 1)


def _at(starts: Sequence[int], place: int) -> int:
    return max(bisect_right(starts, place) - 1, 0)


@dataclass(frozen=True)
class TokenizedSentence:
    """A sentence as one model reads it: ids, and the group that each is part of."""

    ids: list[int]
    groups: list[int]


@dataclass(frozen=True)
class PairSide:
    """One side of a pair: its words, those that are joined, and what the models read."""

    sentence: Sentence
    groups: list[range]
    parts: list[TokenizedSentence]


@dataclass(frozen=True)
class TokenizedPair:
    """Both sides of a pair as one model reads them."""

    src: TokenizedSentence
    tgt: TokenizedSentence


@dataclass(frozen=True)
class SegmentedPair:
    """A pair, and how a model and, where there is one, its reverse read it; no readings where one of them cannot."""

    src: PairSide
    tgt: PairSide
    tokenized: list[TokenizedPair]


def segment_pair(pair: tuple[str, str], models: Sequence[Translator], units: str) -> SegmentedPair:
    """Cut a pair into words, and these into the pieces of a model and of its reverse."""
    src, tgt = _pair_side(pair[0], models, ("src", "tgt"), units), _pair_side(pair[1], models, ("tgt", "src"), units)
    fit = all(
        0 < len(part.ids) <= model.max_len
        for half in (src, tgt)
        for model, part in zip(models, half.parts, strict=True)
    )
    forward, *backward = zip(src.parts, tgt.parts, strict=True)
    readings = [TokenizedPair(*forward), *(TokenizedPair(one, other) for other, one in backward)]
    return SegmentedPair(src, tgt, readings if fit else [])


def _pair_side(text: str, models: Sequence[Translator], sides: tuple[Side, Side], units: str) -> PairSide:
    """Cut one side, which is the source of one of the models and the target of the other."""
    sentence = choose(UNITS, units, "way to find words")(text, models[0], sides[0])
    turned = list(zip(models, sides, strict=False))
    spans = [model.tokenizer.spans(sentence.text, side) for model, side in turned]
    ids = [model.tokenizer.encode(sentence.text, side) for model, side in turned]
    groups = word_groups(sentence.spans, [span for some in spans for span in some])
    parts = [
        TokenizedSentence(some, group_of_tokens(groups, sentence.spans, at))
        for some, at in zip(ids, spans, strict=True)
    ]
    return PairSide(sentence, groups, parts)


def _by_character(text: str, model: Translator, side: Side) -> Sentence:
    return split_words(text)


def _by_piece(text: str, model: Translator, side: Side) -> Sentence:
    return split_pieces(text, model.tokenizer.spans(text, side))


def _tokenised(text: str, model: Translator, side: Side) -> Sentence:
    return join_words(text)


UNITS: dict[str, Callable[[str, Translator, Side], Sentence]] = {
    "characters": _by_character,
    "pieces": _by_piece,
    "tokenised": _tokenised,
}


BATCH_TOKENS = 4096  # of the longer side, with its padding


def soft_links(
    model: Seq2Seq, readings: Sequence[TokenizedPair], choices: Sequence[HeadChoice]
) -> Iterator[tuple[int, Float[Tensor, "C t s"]]]:
    """Return for each pair, longest first, how much target groups attend to source groups by each choice.

    Shares of a group's pieces are added in the source and averaged in the target; the source's end is left out.
    """
    device = next(model.parameters()).device
    lengths = [max(len(each.src.ids), len(each.tgt.ids)) + 1 for each in readings]
    for places in length_sorted(lengths, BATCH_TOKENS):
        some = [readings[place] for place in places]
        batch = make_batch([each.src.ids for each in some], [each.tgt.ids for each in some]).to(device)
        merged = _group_weights(model, batch, some)
        chosen = torch.stack([_select(merged, choice) for choice in choices], dim=1)
        for place, reading, shares in zip(places, some, chosen, strict=True):
            yield place, shares[:, : max(reading.tgt.groups) + 1, : max(reading.src.groups) + 1]


def _group_weights(model: Seq2Seq, batch: Batch, some: Sequence[TokenizedPair]) -> Float[Tensor, "B L H 2 t s"]:
    """Return all heads' weights between groups, for rows as what is said and as what is read."""
    columns = _group_sums([each.src.groups for each in some], batch.src.ids.shape[1]).transpose(1, 2)
    said = _group_sums([each.tgt.groups for each in some], batch.tgt.inputs.shape[1])
    said = said / said.sum(-1, keepdim=True).clamp(min=1.0)
    rows = torch.stack([said, said.roll(1, dims=-1)], dim=1)  # (B, 2, t, T): a token is read one row below
    rows, columns = rows[:, None].to(batch.tgt.inputs.device), columns[:, None, None].to(batch.tgt.inputs.device)
    layers: list[Tensor] = []

    def see(kind: str, layer: int, weights: Tensor) -> None:
        layers.append((rows @ weights.float()[:, :, None] @ columns).cpu())

    attention_maps(model, batch, see, ("cross",))
    return torch.stack(layers, dim=1)


def _group_sums(owners: Sequence[Sequence[int]], width: int) -> Float[Tensor, "B t T"]:
    """Return the matrices that add the pieces of each group."""
    sums = torch.zeros(len(owners), max(max(each) for each in owners) + 1, width)
    for matrix, each in zip(sums, owners, strict=True):
        matrix[each, torch.arange(len(each))] = 1.0
    return sums


def _select(merged: Float[Tensor, "B L H 2 t s"], choice: HeadChoice) -> Float[Tensor, "B t s"]:
    layers = merged if choice.layer is None else merged[:, choice.layer : choice.layer + 1]
    heads = layers if choice.head is None else layers[:, :, choice.head : choice.head + 1]
    return heads[:, :, :, ATS.index(choice.at)].mean((1, 2))


Link = tuple[int, int]  # a source word and a target word, counted from 0

LINK = re.compile(r"(\d+)([-?p])(\d+)")


@dataclass(frozen=True)
class Gold:
    """What people linked in one pair: what all would (sure), and what some would (possible, the sure ones included)."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class AlignmentScore:
    """How near the links of n pairs are to gold ones; all are shares, and of the error rate less is better."""

    aer: float
    precision: float
    recall: float
    n_links: int
    n_sure: int
    n: int


def read_gold(lines: Iterable[str], where: str) -> list[Gold]:
    """Read a pair on each line in Pharaoh's form: `i-j` is a sure link, `i?j` and `ipj` are possible ones."""
    return [_gold(line, f"{where}, line {number}") for number, line in enumerate(lines, start=1)]


def as_pharaoh(links: Iterable[Link]) -> str:
    """Write links as `i-j`, in the order of the source."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def check_gold(gold: Gold, n_src: int, n_tgt: int, where: str) -> None:
    """Raise ValueError where a link names a word that is not there."""
    for i, j in sorted(gold.possible):
        if i >= n_src or j >= n_tgt:
            raise ValueError(
                f"{where}: links must join words 0 … {n_src - 1} to words 0 … {n_tgt - 1}, got {i}-{j}: "
                "words are counted from 0, and must be split as here"
            )


def score_alignment(found: Sequence[Set[Link]], gold: Sequence[Gold]) -> AlignmentScore:
    """Return `1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)` over all pairs (Och and Ney 2003).

    A is what was found, S are the sure links, P the possible ones. Of no links none is wrong.
    """
    if len(found) != len(gold):
        raise ValueError(f"there must be one line of gold links for each pair, got {len(gold)} for {len(found)}")
    both = list(zip(found, gold, strict=True))
    in_sure = sum(len(links & each.sure) for links, each in both)
    in_possible = sum(len(links & each.possible) for links, each in both)
    n_links, n_sure = sum(map(len, found)), sum(len(each.sure) for each in gold)
    rates = error_rate(in_sure, in_possible, n_links, n_sure)
    return AlignmentScore(rates, _share(in_possible, n_links), _share(in_sure, n_sure), n_links, n_sure, len(gold))


def error_rate(in_sure: int, in_possible: int, n_links: int, n_sure: int) -> float:
    """Return the alignment error rate of some counts."""
    return 1.0 - _share(in_sure + in_possible, n_links + n_sure)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _gold(line: str, where: str) -> Gold:
    sure, possible = set(), set()
    for text in line.split():
        match = LINK.fullmatch(text)
        if match is None:
            raise ValueError(f"{where}: a link must be written i-j where it is sure, i?j where possible, got {text!r}")
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def to_source(soft: Float[Tensor, "*C t s"]) -> Bool[Tensor, "*C t s"]:
    """Link each target word group to the source group with the most weight, if any has some."""
    best = torch.zeros_like(soft, dtype=torch.bool).scatter_(-1, soft.argmax(-1, keepdim=True), True)
    return best & (soft > 0)


def to_target(soft: Float[Tensor, "*C t s"]) -> Bool[Tensor, "*C t s"]:
    """Link each source word group to the target group that gives it the most weight, if any does."""
    return to_source(soft.transpose(-1, -2)).transpose(-1, -2)


def agree(one: Sequence[Bool[Tensor, "C _ _"]], other: Sequence[Bool[Tensor, "C2 _ _"]]) -> Float[Tensor, "C C2"]:
    """Return `2 |A ∩ B| / (|A| + |B|)` of the links of any two choices over all pairs."""
    shared, n_one, n_other = (
        torch.zeros(len(one[0]), len(other[0])),
        torch.zeros(len(one[0])),
        torch.zeros(len(other[0])),
    )
    for left, right in zip(one, other, strict=True):
        a, b = left.flatten(1).float(), right.flatten(1).float()
        shared += a @ b.T
        n_one += a.sum(1)
        n_other += b.sum(1)
    return 2 * shared / (n_one[:, None] + n_other).clamp(min=1.0)


def agree_with_gold(
    reads: Sequence[SegmentedPair], links: Sequence[Bool[Tensor, "C _ _"]], gold: Sequence[Gold]
) -> Float[Tensor, " C"]:
    """Return the alignment error rate of each choice."""
    counts = torch.zeros(
        4, len(links[0]), dtype=torch.int64
    )  # links among the sure, among the possible, all, and sure ones
    for read, found, each in zip(reads, links, gold, strict=True):
        words = to_words(read, found)
        sure, possible = (_table(chosen, words) for chosen in (each.sure, each.possible))
        counts[0] += (words & sure).sum((1, 2))
        counts[1] += (words & possible).sum((1, 2))
        counts[2] += words.sum((1, 2))
        counts[3] += sure.sum()
    return torch.tensor([error_rate(*each) for each in counts.T.tolist()])


def to_words(read: SegmentedPair, links: Shaped[Tensor, "*C t s"]) -> Shaped[Tensor, "*C T S"]:
    """Give each word the value of its group."""
    rows, columns = ([n for n, group in enumerate(each) for _ in group] for each in (read.tgt.groups, read.src.groups))
    return links[..., rows, :][..., columns]


def _table(links: frozenset[tuple[int, int]], like: Bool[Tensor, "C T S"]) -> Bool[Tensor, "T S"]:
    table = torch.zeros(like.shape[1:], dtype=torch.bool)
    for i, j in links:
        table[j, i] = True
    return table


Links = Set[Link]
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def intersection(forward: Links, backward: Links) -> set[Link]:
    """Keep what both say: few links, nearly all of them right."""
    return set(forward) & set(backward)


def union(forward: Links, backward: Links) -> set[Link]:
    """Take what either says: many links, few are missed."""
    return set(forward) | set(backward)


def grow_diag(forward: Links, backward: Links) -> set[Link]:
    """Begin with the intersection, and take neighbours from the union that give a word its first link.

    Koehn, Och and Marcu 2003. Grows in passes over the links in order until none adds anything.
    """
    links, either = intersection(forward, backward), union(forward, backward)
    sources, targets = {i for i, _ in links}, {j for _, j in links}
    n_links = -1
    while n_links < len(links):
        n_links = len(links)
        for near in [(i + down, j + right) for i, j in sorted(links) for down, right in NEIGHBOURS]:
            if near in either and (near[0] not in sources or near[1] not in targets):
                links.add(near)
                sources.add(near[0])
                targets.add(near[1])
    return links


def grow_diag_final_and(forward: Links, backward: Links) -> set[Link]:
    """Add, and take at last the links of either direction between two words that both have none."""
    links = grow_diag(forward, backward)
    sources, targets = {i for i, _ in links}, {j for _, j in links}
    for side in (forward, backward):
        for i, j in sorted(side):
            if i not in sources and j not in targets:
                links.add((i, j))
                sources.add(i)
                targets.add(j)
    return links


SYMMETRISE: dict[str, Callable[[Links, Links], set[Link]]] = {
    "intersection": intersection,
    "union": union,
    "grow-diag": grow_diag,
    "grow-diag-final-and": grow_diag_final_and,
}
