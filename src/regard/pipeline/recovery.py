"""Parts that are searched for again: whose targets go round in circles, say nothing, or lack what is to be copied.

What a model says by itself stays as it is: a second search costs time only where the first has failed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from regard.config import DecodeSettings
from regard.data.tokenizer import Tokenizer
from regard.padding import Ids, length_sorted
from regard.pipeline.copies import copy_constraints, lost_copies
from regard.pipeline.glossary import TargetVocabulary
from regard.search import SEARCH
from regard.search.constrained import constrained_search
from regard.search.constraint import Constraint
from regard.search.decoder import IncrementalDecoder
from regard.search.hypothesis import Hypothesis, is_loop
from regard.search.loops import LoopFreeDecoder


@dataclass(frozen=True)
class ReadPart:
    """What a model read by itself, and what its target has to begin with and to contain."""

    text: str
    ids: Ids
    prefix: Sequence[int] = ()
    constraints: Sequence[Constraint] = field(default=())


def has_failed(part: ReadPart, best: Hypothesis, tokenizer: Tokenizer) -> bool:
    """Tell whether a target repeats itself, is empty, or lacks an address or a number of its source."""
    if is_loop(part.ids, best.ids) or (not best.ids and any(map(str.isalnum, part.text))):
        return True
    may_have_copies = any(character.isdigit() or character in ".@" for character in part.text)
    return may_have_copies and bool(lost_copies(part.text, tokenizer.decode(best.ids)))


def search_again(
    decoder: IncrementalDecoder, parts: Sequence[ReadPart], settings: DecodeSettings, tokenizer: Tokenizer
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Yield, with its index, what is found for each part: it does not repeat itself, and holds what is to be copied."""
    again, vocabulary = LoopFreeDecoder(decoder), TargetVocabulary(tokenizer)
    for batch in length_sorted([len(part.ids) + 1 for part in parts], settings.batch_tokens // max(1, settings.beam)):
        some = [parts[i] for i in batch]
        sources, prefixes = [part.ids for part in some], [list(part.prefix) for part in some]
        wanted = [[*part.constraints, *copy_constraints(part.text, vocabulary)] for part in some]
        if any(wanted):
            found = constrained_search(again, sources, settings, wanted, prefixes)
        else:
            found = SEARCH[settings.method](again, sources, settings, prefixes if any(prefixes) else None)
        yield from zip(batch, found, strict=True)
