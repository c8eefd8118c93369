"""Word alignments against gold ones: precision, recall and the alignment error rate."""

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

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
    """Reads a pair on each line in Pharaoh's form: `i-j` is a sure link, `i?j` and `ipj` are possible ones."""
    return [_gold(line, f"{where}, line {number}") for number, line in enumerate(lines, start=1)]


def as_pharaoh(links: Iterable[Link]) -> str:
    """Writes links as `i-j`, in the order of the source."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def check_gold(gold: Gold, n_src: int, n_tgt: int, where: str) -> None:
    """Raises ValueError where a link names a word that is not there."""
    for i, j in sorted(gold.possible):
        if i >= n_src or j >= n_tgt:
            raise ValueError(
                f"{where}: links must join words 0 … {n_src - 1} to words 0 … {n_tgt - 1}, got {i}-{j}: "
                "words are counted from 0, and must be split as here"
            )


def score_alignment(found: Sequence[Set[Link]], gold: Sequence[Gold]) -> AlignmentScore:
    """Gives `1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)` over all pairs (Och and Ney 2003).

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
    """Gives the alignment error rate of some counts."""
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
