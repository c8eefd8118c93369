"""Do words and positions live in nearly orthogonal subspaces, and which features carry position? (S7.5)"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.batch import EOS
from regard.decode.translator import Translator
from regard.model.embedding import Embedding
from regard.study.angles import Comparison, compare, leading
from regard.study.clock import one_thread
from regard.study.embedded import code_vectors, scheme_of, word_vectors
from regard.study.groups import corrected, explained, group_means, joint_means, pooled
from regard.study.position_probe import is_word
from regard.study.readable import readable
from regard.trace.bar import Bar, no_bar
from regard.trace.stream import Stream, looked_into, record_streams

LEAST_PAIRS = 16
MOST_PLACES = 512  # whose codes are compared with words


@dataclass(frozen=True)
class SubspaceSettings:
    """Which subspaces are compared: those with a share of the variance, and those of so many dimensions."""

    share: float = 0.9
    tops: tuple[int, ...] = (4, 16, 64)
    draws: int = 200  # of random subspaces
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Table:
    """The vectors of words and the codes of places, before the first layer."""

    n_words: int
    n_places: int
    comparisons: list[Comparison]
    cosine: float  # root mean square of the cosines between centred words and centred codes
    random_cosine: float  # that of random vectors, 1/√D


@dataclass(frozen=True, eq=False)
class Point:
    """The stream at one point: the share of each feature's variance that position explains, corrected for chance.

    `total` is the share of the whole variance, `beyond_words` that which the means of words leave to explain: a full
    stop stands late, so that words tell places. The comparison is between what words and what places bring to a common
    fit, each free of the other.
    """

    point: str
    shares: Float[Tensor, " D"]
    total: float
    beyond_words: float
    comparison: Comparison


@dataclass(frozen=True, eq=False)
class StackSubspaces:
    """One stack; `table` is None where the position scheme puts nothing into the stream."""

    stack: str
    table: Table | None
    points: list[Point]


@dataclass(frozen=True, eq=False)
class SubspaceStudy:
    """What was found in both stacks of a model."""

    model: str
    scheme: str
    n_pairs: int
    n_unread: int
    settings: SubspaceSettings
    stacks: list[StackSubspaces]


@one_thread()
def run_subspaces(
    name: str,
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    settings: SubspaceSettings,
    bar: Bar = no_bar,
) -> SubspaceStudy:
    """Compares words with codes in a model's tables, and words with places in its stream over some pairs."""
    text = readable(translator, pairs, LEAST_PAIRS)
    streams, plain = record_streams(translator.model, text.src, text.tgt, bar), looked_into(translator.model)
    embeddings, n_places = {"encoder": plain.src, "decoder": plain.tgt}, min(translator.max_len, MOST_PLACES)
    stacks = []
    for stack, stream in bar(list(streams.items()), len(streams), "comparing"):
        chance = torch.Generator().manual_seed(settings.seed)
        table = compare_tables(embeddings[stack], n_places, settings, chance)
        stacks.append(StackSubspaces(stack, table, compare_stream(stream, settings, chance)))
    return SubspaceStudy(name, scheme_of(plain), len(text.src), text.n_unread, settings, stacks)


def compare_tables(
    embedding: Embedding, n_places: int, settings: SubspaceSettings, chance: torch.Generator
) -> Table | None:
    """Compares all words but the special ones with the codes of the first places; None where there are no codes."""
    codes = code_vectors(embedding, torch.arange(n_places))
    if codes is None:
        return None
    words = word_vectors(embedding, torch.arange(EOS + 1, embedding.table.weight.shape[0]))
    sizes: list[tuple[str, float | None, int | None]] = [(f"{settings.share:.0%}", settings.share, None)]
    sizes += [(f"top {top}", None, top) for top in settings.tops if top < words.shape[1]]
    found = [
        compare(name, leading(words, share, top), leading(codes, share, top), settings.draws, chance)
        for name, share, top in sizes
    ]
    return Table(len(words), n_places, found, cosine(words, codes), words.shape[1] ** -0.5)


def cosine(words: Float[Tensor, "N D"], codes: Float[Tensor, "P D"]) -> float:
    """Gives the root mean square of the cosines between rows, each side centred."""
    one, other = (torch.nn.functional.normalize(x.double() - x.double().mean(0), dim=1) for x in (words, codes))
    return float((one @ other.T).square().mean().sqrt())


def compare_stream(stream: Stream, settings: SubspaceSettings, chance: torch.Generator) -> list[Point]:
    """Says at each point which features tell the place, and how the means of words and of places lie."""
    words = is_word(stream.tokens)
    places, ids = pooled(stream.tokens.positions[words]), pooled(stream.tokens.ids[words])
    n_places, n_ids = int(places.max()) + 1, int(ids.max()) + 1
    if min(n_places, n_ids) < 3:
        raise ValueError(f"the text must have 3 places and 3 words that occur often, got {n_places} and {n_ids}")
    found = []
    for point, x in stream.points().items():
        x = x[words].double()
        shares, variance = corrected(explained(x, places), len(x), n_places), x.var(0, correction=0)
        left = x - group_means(x, ids)[ids]
        beyond = corrected(explained(left, places), len(x), n_places) * left.var(0, correction=0)
        total, beyond_words = (float(each.sum() / variance.sum()) for each in (shares * variance, beyond))
        of_words, of_places = (leading(means, settings.share) for means in joint_means(x, ids, places))
        lie = compare("words and places in the stream", of_words, of_places, settings.draws, chance)
        found.append(Point(point, shares, total, beyond_words, lie))
    return found
