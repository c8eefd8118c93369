"""Choosing the next token: the table of searches."""

from collections.abc import Callable

from regard.batch import Source
from regard.config import DecodeSettings
from regard.model import Seq2Seq
from regard.search import beam
from regard.search.hypothesis import Hypothesis
from regard.search.sampling import greedy_search, sample_search

__all__ = ["SEARCH", "Hypothesis", "Search"]

# For each sentence its hypotheses, best first; each begins with the ids of its prefix, where prefixes are given.
Search = Callable[[Seq2Seq, Source, DecodeSettings, list[list[int]] | None], list[list[Hypothesis]]]

SEARCH: dict[str, Search] = {
    "greedy": greedy_search,
    "beam": beam.search,
    "sample": sample_search,
}
