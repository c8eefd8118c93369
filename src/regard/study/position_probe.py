"""Is position lost in the upper layers? A linear probe reads it from the stream at each of them (S7.4)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.batch import BOS, EOS, PAD, Ids
from regard.decode.translator import Translator
from regard.model.embedding import Embedding
from regard.study.clock import one_thread
from regard.study.embedded import code_vectors, scheme_of, word_vectors
from regard.study.readable import readable
from regard.study.ridge import probe
from regard.study.small_pair import SmallSettings, n_given_out, renumbered, small_models
from regard.study.spread import Spread, spread
from regard.trace.bar import Bar, no_bar
from regard.trace.stream import Stream, Tokens, looked_into, record_streams

LEAST_PAIRS = 16


@dataclass(frozen=True)
class ProbeSettings:
    """How often the sentences are split, and what the small models are that are taught besides, on all pairs."""

    splits: int = 5
    most: int = 1000  # pairs that are probed, from the first on
    seed: int = 0
    small: SmallSettings = field(default_factory=SmallSettings)
    small_seeds: int = 3


@dataclass(frozen=True)
class Reading:
    """How much of the position a probe tells at one point: R² on held-out sentences.

    `place` is the number of the token, `share` its place between the sentence's first word, 0, and its last, 1; with
    `shuffled` places the probe has nothing to find.
    """

    point: str
    place: Spread
    share: Spread
    shuffled: Spread


@dataclass(frozen=True)
class StackReadings:
    """One stack: the stream, what each sub-layer writes, and what words and codes tell by themselves."""

    stack: str
    points: list[Reading]
    updates: list[Reading]
    words: Reading | None
    codes: Reading | None  # None where the scheme adds no codes to the stream


@dataclass(frozen=True)
class SmallReadings:
    """The small models of one kind, over all seeds: what a held-out token costs them, and their stacks."""

    residual: bool
    trained: bool
    loss: Spread
    stacks: list[StackReadings]


@dataclass(frozen=True)
class ProbeStudy:
    """A trained model's stacks, and small models with and without residual connections on the same text."""

    model: str
    scheme: str
    n_pairs: int  # on which small models were taught
    n_unread: int
    n_words: dict[str, int]  # that are read from, in each stack
    settings: ProbeSettings
    stacks: list[StackReadings]
    small: list[SmallReadings]


Raw = dict[str, Float[Tensor, "splits 3"]]  # R² of place, share and shuffled place, for each point


@one_thread()
def run_position_probe(
    name: str,
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    settings: ProbeSettings,
    device: str = "cpu",
    bar: Bar = no_bar,
) -> ProbeStudy:
    """Probes a model on some pairs, then teaches small ones on the same pairs and probes these."""
    text = readable(translator, pairs, LEAST_PAIRS)
    plain, some = looked_into(translator.model), (text.src[: settings.most], text.tgt[: settings.most])
    streams = record_streams(translator.model, *some, bar)
    embeddings = {"encoder": plain.src, "decoder": plain.tgt}
    parts = [(stream, embeddings[stack]) for stack, stream in streams.items()]
    stacks = [read_stack(stream, words, settings) for stream, words in bar(parts, len(parts), "probing")]
    n_words = {stack: int(is_word(stream.tokens).sum()) for stack, stream in streams.items()}
    small = _read_small(renumbered(text.src, text.tgt), settings, device, bar)
    return ProbeStudy(name, scheme_of(plain), len(text.src), text.n_unread, n_words, settings, stacks, small)


def read_stack(stream: Stream, embedding: Embedding, settings: ProbeSettings) -> StackReadings:
    """Probes one stack of a model, its sub-layers' updates, and words and codes alone."""
    ids, positions = stream.tokens.ids, stream.tokens.positions
    updates = {f"{layer} {sublayer.replace('_', ' ')}": x for (layer, sublayer), x in stream.updates.items()}
    codes = code_vectors(embedding, positions)
    alone = {"words": word_vectors(embedding, ids), **({} if codes is None else {"codes": codes})}
    points, written, controls = (
        _readings(probed(each, stream.tokens, settings)) for each in (stream.points(), updates, alone)
    )
    named = {reading.point: reading for reading in controls}
    return StackReadings(stream.stack, points, written, named["words"], named.get("codes"))


def probed(vectors: dict[str, Float[Tensor, "N D"]], tokens: Tokens, settings: ProbeSettings) -> Raw:
    """Gives R² at each point; begin and end of a sentence are no words, and are left out."""
    words = is_word(tokens)
    positions, sentences = tokens.positions[words], tokens.sentences[words]
    order = torch.randperm(len(positions), generator=torch.Generator().manual_seed(settings.seed))
    y = torch.stack([positions.double(), shares(positions, sentences), positions[order].double()], dim=1)
    return {point: probe(x[words], y, sentences, settings.splits, settings.seed) for point, x in vectors.items()}


def is_word(tokens: Tokens) -> Bool[Tensor, " N"]:
    """Tells which tokens are pieces of a sentence that has two or more of them."""
    special = torch.isin(tokens.ids, torch.tensor([PAD, BOS, EOS]))
    counts = torch.bincount(tokens.sentences[~special], minlength=int(tokens.sentences.max()) + 1)
    return ~special & (counts[tokens.sentences] > 1)


def shares(positions: Int[Tensor, " N"], sentences: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Gives where each word stands between its sentence's first, 0, and last, 1."""
    n, places = int(sentences.max()) + 1, positions.double()
    first = torch.zeros(n, dtype=torch.float64).scatter_reduce(0, sentences, places, "amin", include_self=False)
    last = torch.zeros(n, dtype=torch.float64).scatter_reduce(0, sentences, places, "amax", include_self=False)
    return (places - first[sentences]) / (last - first)[sentences]


def _read_small(
    text: tuple[list[Ids], list[Ids], int], settings: ProbeSettings, device: str, bar: Bar
) -> list[SmallReadings]:
    """Probes the small models before and after they learn, all seeds of a kind together."""
    seeds = [settings.seed + n for n in range(settings.small_seeds)]
    losses: dict[tuple[bool, bool], list[float]] = {}
    raws: dict[tuple[bool, bool], list[dict[str, Raw]]] = {}
    src, tgt, n_pieces = text
    made = small_models(src, tgt, n_pieces, settings.small, seeds, device)
    for small in bar(made, n_given_out(seeds), "teaching small models"):
        kind = small.residual, small.trained
        streams = record_streams(small.model, src[: settings.most], tgt[: settings.most])
        losses.setdefault(kind, []).append(small.loss)
        raws.setdefault(kind, []).append(
            {stack: probed(stream.points(), stream.tokens, settings) for stack, stream in streams.items()}
        )
    return [SmallReadings(*kind, spread(losses[kind]), _small_stacks(raws[kind])) for kind in raws]


def _small_stacks(seeds: list[dict[str, Raw]]) -> list[StackReadings]:
    stacks = []
    for stack, points in seeds[0].items():
        joined = {point: torch.cat([each[stack][point] for each in seeds]) for point in points}
        stacks.append(StackReadings(stack, _readings(joined), [], None, None))
    return stacks


def _readings(raw: Raw) -> list[Reading]:
    return [Reading(point, *(spread(column) for column in found.unbind(1))) for point, found in raw.items()]
