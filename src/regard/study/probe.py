"""`study position-probe`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from torch import Tensor

from regard.model.layers import Embedding
from regard.padding import BOS, EOS, PAD, Ids
from regard.pipeline.translator import Translator
from regard.plot.style import COLOURS, Drawing, in_style
from regard.plot.terminal import QUIET
from regard.study.inputs import readable
from regard.study.residual_free import SmallSettings, n_given_out, renumbered, small_models
from regard.study.stats import Spread, spread
from regard.study.stream_parts import code_vectors, scheme_of, word_vectors
from regard.study.timing import one_thread
from regard.trace.head_ablation import ProgressBar, no_progress
from regard.trace.residual import Stream, Tokens, plain_transformer, record_streams

# Times the mean variance of a feature; which one is used is decided on a part of the sentences that it learns from.
STRENGTHS = tuple(10.0**power for power in range(-8, 3))
HELD_OUT = 0.25  # of the sentences


def fit_ridge(
    x: Float[Tensor, "N D"], y: Float[Tensor, "N K"], strengths: Float[Tensor, "S K"]
) -> tuple[Float[Tensor, "S D K"], Float[Tensor, "S K"]]:
    """Gives `argmin_w mean (y − w·x − b)² + λ |w|²` and b, for each target with strengths of its own.

    `λ` is the strength times the mean variance of a feature. One decomposition of the D × D matrix of covariances
    serves all strengths and targets.
    """
    centre, middle = x.mean(0), y.mean(0)
    x, y = x - centre, y - middle
    values, vectors = torch.linalg.eigh(x.T @ x / len(x))
    values = values.clamp(min=0.0)
    turned = vectors.T @ (x.T @ y) / len(x)  # (D, K)
    penalty = (strengths * values.mean()).clamp(min=torch.finfo(x.dtype).tiny)
    weights = vectors @ (turned / (values[:, None] + penalty[:, None]))  # (S, D, K)
    return weights, middle - centre @ weights


def r_squared(y: Float[Tensor, "N K"], guess: Float[Tensor, "*S N K"]) -> Float[Tensor, "*S K"]:
    """Gives `1 − Σ (y − guess)² / Σ (y − mean)²`: 1 where all is told, 0 where the mean tells as much."""
    total = (y - y.mean(0)).square().sum(0)
    return 1 - (y - guess).square().sum(-2) / total


def probe(
    x: Float[Tensor, "N D"], y: Float[Tensor, "N K"], sentences: Int[Tensor, " N"], splits: int, seed: int
) -> Float[Tensor, "splits K"]:
    """Learns to tell y from x on three quarters of the sentences, and gives R² on the others, for some splits."""
    numbers = sentences.unique()
    if len(numbers) < 8:
        raise ValueError(f"a probe needs 8 sentences or more, some to learn from and some held out, got {len(numbers)}")
    x, y = x.double(), y.double()
    chance = torch.Generator().manual_seed(seed)
    return torch.stack([_split(x, y, sentences, numbers, chance) for _ in range(splits)])


def _split(x: Tensor, y: Tensor, sentences: Tensor, numbers: Tensor, chance: torch.Generator) -> Tensor:
    """Chooses strengths on a held-out part of what is learned from, learns again from all of it, and is judged."""
    shuffled = numbers[torch.randperm(len(numbers), generator=chance)]
    n_test = round(HELD_OUT * len(numbers))
    n_tried = round(HELD_OUT * (len(numbers) - n_test))
    test, tried = (torch.isin(sentences, some) for some in (shuffled[:n_test], shuffled[n_test : n_test + n_tried]))
    every = torch.tensor(STRENGTHS, dtype=x.dtype)[:, None].expand(-1, y.shape[1])
    best = _judged(x, y, ~test & ~tried, tried, every).argmax(0)
    return _judged(x, y, ~test, test, every.gather(0, best[None]))[0]


def _judged(
    x: Tensor, y: Tensor, learned: Bool[Tensor, " N"], judged: Bool[Tensor, " N"], strengths: Tensor
) -> Float[Tensor, "S K"]:
    """Gives R²; no guess goes beyond the targets that were learned from.

    In a stream that has collapsed, all but equal vectors tell little, and one that differs would lie millions of
    standard deviations away, and be guessed as far out.
    """
    weights, offset = fit_ridge(x[learned], y[learned], strengths)
    guess = x[judged] @ weights + offset[:, None]
    return r_squared(y[judged], guess.clamp(y[learned].amin(0), y[learned].amax(0)))


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
    bar: ProgressBar = no_progress,
) -> ProbeStudy:
    """Probes a model on some pairs, then teaches small ones on the same pairs and probes these."""
    text = readable(translator, pairs, LEAST_PAIRS)
    plain, some = plain_transformer(translator.model), (text.src[: settings.most], text.tgt[: settings.most])
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
    text: tuple[list[Ids], list[Ids], int], settings: ProbeSettings, device: str, bar: ProgressBar
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


CAPTION = (
    "R² on held-out sentences, mean ± standard deviation over the splits. place: the token's number; share: its place "
    "between the first word, 0, and the last, 1; shuffled: places in another order, where there is nothing to find."
)
SMALL_CAPTION = (
    "R² of the place, over splits and seeds; loss: what a held-out token costs, in nats. Without residual connections "
    "each sub-layer's output replaces the stream."
)
# By whether there are residual connections, and whether anything was learned.
KINDS = {
    (True, True): "with",
    (False, True): "without",
    (True, False): "with, untaught",
    (False, False): "without, untaught",
}


def probe_table(study: ProbeStudy) -> Table:
    """Lists the stream of both stacks, and what words and codes tell alone."""
    title = f"Where is position? {study.model}, {study.scheme} positions, {study.n_pairs} pairs"
    table = _table(title, CAPTION, ("stack", "where", "place", "share", "shuffled"), n_names=2)
    for stack in study.stacks:
        alone = [("codes alone", stack.codes), ("words alone", stack.words)]
        named = [(reading.point, reading) for reading in stack.points]
        for name, reading in [*((name, found) for name, found in alone if found is not None), *named]:
            table.add_row(stack.stack, name, *_cells(reading))
    return table


def updates_table(study: ProbeStudy) -> Table:
    """Lists what each sub-layer writes into the stream, read by itself."""
    title = f"Without the stream: what the sub-layers of {study.model} write"
    table = _table(title, "", ("stack", "sub-layer", "place", "share", "shuffled"), n_names=2)
    for stack in study.stacks:
        for reading in stack.updates:
            table.add_row(stack.stack, reading.point, *_cells(reading))
    return table


def small_table(study: ProbeStudy) -> Table:
    """Lists the small models side by side, layer by layer."""
    small, kinds = study.settings.small, {kind(each): each for each in study.small}
    taught = f"{small.steps} steps, width {small.d_model}, seeds: {study.settings.small_seeds}"
    title = f"Small models with and without residual connections, taught on the same pairs: {taught}"
    table = _table(title, SMALL_CAPTION, ("stack", "where", *KINDS.values()), n_names=2)
    for number, stack in enumerate(kinds[True, True].stacks):
        for point, reading in enumerate(stack.points):
            found = [kinds[which].stacks[number].points[point].place for which in KINDS]
            table.add_row(stack.stack, reading.point, *map(short, found))
    table.add_row("both", "loss", *(short(kinds[which].loss) for which in KINDS))
    return table


def kind(small: SmallReadings) -> tuple[bool, bool]:
    """Says of which kind small models are: with residuals, and taught."""
    return small.residual, small.trained


def short(number: Spread) -> str:
    """Writes a mean with its spread in few characters."""
    return f"{number.mean:.2f} ± {number.spread:.2f}".replace("-", "−")


def _table(title: str, caption: str, columns: tuple[str, ...], n_names: int) -> Table:
    table = Table(title=title, caption=caption or None, **QUIET)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < n_names else "right")
    return table


def _cells(reading: Reading) -> list[str]:
    return [short(each) for each in (reading.place, reading.share, reading.shuffled)]


LOWEST = -0.25  # R² below this is drawn at the edge
LINES = {"with": "o-", "without": "s-", "with, untaught": "o:", "without, untaught": "s:"}


@in_style
def draw_position_probe(study: ProbeStudy) -> Figure:
    """Draws both stacks of the model, and below them those of the small models."""
    figure = Drawing(figsize=(10, 6.6))
    axes = figure.subplots(2, 2, sharey=True)
    for place, stack in zip(axes[0], study.stacks, strict=True):
        _draw_stack(place, stack, f"{study.model}: {stack.stack}")
    for number, place in enumerate(axes[1]):
        for small in study.small:
            stack, name = small.stacks[number], KINDS[kind(small)]
            _curve(place, [reading.point for reading in stack.points], stack.points, LINES[name], name)
        place.set(title=f"small models, residuals: {study.small[0].stacks[number].stack}")
    for row in axes:
        row[0].set_ylabel("R² of the place, held-out sentences")
        for place in row:
            place.axhline(0, color="0.7", linewidth=0.8, zorder=0)
            place.set_ylim(LOWEST - 0.05, 1.05)
            place.legend(fontsize="small")
    return figure


def _draw_stack(axes: Axes, stack: StackReadings, title: str) -> None:
    """Draws the stream after each layer, and between the layers what their sub-layers write."""
    names = [reading.point for reading in stack.points]
    _curve(axes, names, stack.points, "o-", "the stream")
    n = len(stack.updates) // max(1, len(names) - 1)
    places = [layer + (part + 1) / (n + 1) for layer in range(len(names) - 1) for part in range(n)]
    updates = [max(LOWEST, reading.place.mean) for reading in stack.updates]
    axes.plot(places, updates, "x", color=COLOURS[1], label="a sub-layer's update alone")
    for reading, name, colour in ((stack.codes, "codes alone", 2), (stack.words, "words alone", 3)):
        if reading is not None:
            axes.axhline(reading.place.mean, linestyle="--", linewidth=1, color=COLOURS[colour], label=name)
    shuffled = [max(LOWEST, reading.shuffled.mean) for reading in stack.points]
    axes.plot(range(len(names)), shuffled, ".:", color="0.5", label="places shuffled")
    axes.set(title=title)


def _curve(axes: Axes, names: list[str], readings: list[Reading], line: str, label: str) -> None:
    means = [max(LOWEST, reading.place.mean) for reading in readings]
    axes.errorbar(
        range(len(names)), means, [reading.place.spread for reading in readings], fmt=line, markersize=4, label=label
    )
    axes.set_xticks(range(len(names)), names, rotation=20)
