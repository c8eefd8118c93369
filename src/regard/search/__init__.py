"""Choosing the next token, in NumPy: the table of searches, which are the reference for every engine."""

from collections.abc import Callable, Sequence

from regard.config import DecodeSettings
from regard.padding import Ids
from regard.search.beam import beam_search, check_beam
from regard.search.decoder import IncrementalDecoder
from regard.search.hypothesis import Hypothesis
from regard.search.sampling import check_greedy, check_sampling, greedy_search, sample_search

__all__ = ["CHECK", "SEARCH", "Hypothesis", "Search"]

# For each sentence its hypotheses, best first; each begins with the ids of its prefix, where prefixes are given.
Search = Callable[[IncrementalDecoder, Sequence[Ids], DecodeSettings, Sequence[Ids] | None], list[list[Hypothesis]]]

SEARCH: dict[str, Search] = {"greedy": greedy_search, "beam": beam_search, "sample": sample_search}
# What each refuses, for engines that run the search themselves.
CHECK: dict[str, Callable[[DecodeSettings], None]] = {
    "greedy": check_greedy,
    "beam": check_beam,
    "sample": check_sampling,
}
