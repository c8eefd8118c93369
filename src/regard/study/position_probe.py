"""`regard study position-probe`: is position lost in the upper layers?"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table
from torch import Tensor

from regard.model.layers import Embedding
from regard.padding import BOS, EOS, PAD, Ids
from regard.pipeline.translator import Translator
from regard.plot.style import COLOURS, in_style, new_figure
from regard.shapes import Bool, Float, Int
from regard.study.linear_probe import probe
from regard.study.no_residuals import SmallSettings, n_small_models, renumber_tokens, small_models
from regard.study.repeats import MeanStd, mean_std
from regard.study.sequences import encode_pairs
from regard.study.stream_parts import code_vectors, scheme_of, word_vectors
from regard.study.timing import one_thread
from regard.terminal import QUIET
from regard.trace.head_ablation import ProgressBar, no_progress
from regard.trace.hugging_face import HiddenStates, record_hf_states
from regard.trace.residual import Stream, Tokens, plain_transformer, record_streams

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_PAIRS = 16
SPECIAL = (PAD, BOS, EOS)


@dataclass(frozen=True)
class ProbeSettings:
    """The number of splits, and the small models that are trained on the same pairs."""

    splits: int = 5
    most: int = 1000  # pairs that are probed
    seed: int = 0
    small: SmallSettings = field(default_factory=SmallSettings)
    small_seeds: int = 3


@dataclass(frozen=True)
class ProbeScore:
    """How well a probe reads the position at one point: R² on held-out sentences.

    `position` is the index of the token, `relative` its position between the sentence's first word, 0, and its last, 1;
    with `shuffled` positions there is nothing to find.
    """

    point: str
    position: MeanStd = field(metadata={"json": "place"})
    relative: MeanStd = field(metadata={"json": "share"})
    shuffled: MeanStd


@dataclass(frozen=True)
class StackScores:
    """One stack: the stream, what each sub-layer adds, and words and codes alone."""

    stack: str
    points: list[ProbeScore]
    updates: list[ProbeScore]
    words: ProbeScore | None
    codes: ProbeScore | None  # None where the encoding adds no codes to the stream


@dataclass(frozen=True)
class SmallScores:
    """The small models of one kind, over all seeds: the loss of a held-out token, and their stacks."""

    residual: bool
    trained: bool
    loss: MeanStd
    stacks: list[StackScores]


@dataclass(frozen=True)
class ProbeStudy:
    """A trained model's stacks, and small models with and without residual connections on the same text."""

    model: str
    scheme: str
    n_pairs: int  # on which small models were trained
    n_unread: int
    n_words: dict[str, int]  # that are probed, in each stack
    settings: ProbeSettings
    stacks: list[StackScores]
    small: list[SmallScores]  # none for other people's models, which read with tokenizers of their own


SETTINGS = ProbeSettings()
QUICK = ProbeSettings(splits=3, small=SmallSettings(steps=400), small_seeds=1)

Raw = dict[str, Float[Tensor, "splits 3"]]  # R² of position, relative and shuffled position, for each point


@one_thread()
def run(
    name: str,
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    settings: ProbeSettings,
    device: str = "cpu",
    bar: ProgressBar = no_progress,
) -> ProbeStudy:
    """Probe a model on some pairs, then train small ones on the same pairs and probe these."""
    text = encode_pairs(translator, pairs, LEAST_PAIRS)
    plain, some = plain_transformer(translator.model), (text.src[: settings.most], text.tgt[: settings.most])
    streams = record_streams(translator.model, *some, bar)
    embeddings = {"encoder": plain.src, "decoder": plain.tgt}
    parts = [(stream, embeddings[stack]) for stack, stream in streams.items()]
    stacks = [probe_stack(stream, words, settings) for stream, words in bar(parts, len(parts), "probing")]
    n_words = {stack: int(is_word(stream.tokens).sum()) for stack, stream in streams.items()}
    small = _probe_small(renumber_tokens(text.src, text.tgt), settings, device, bar)
    return ProbeStudy(name, scheme_of(plain), len(text.src), text.n_unread, n_words, settings, stacks, small)


@one_thread()
def run_hf(
    name: str,
    model: Any,
    tokenizer: Any,
    pairs: Sequence[tuple[str, str]],
    settings: ProbeSettings,
    bar: ProgressBar = no_progress,
) -> ProbeStudy:
    """Probe a Hugging Face model at its embedding and after each layer.

    An encoder–decoder reads pairs, any other model their sources.
    """
    states = record_hf_states(model, tokenizer, pairs[: settings.most], bar)
    n_pairs = len(states[0].tokens.sentences.unique()) if states else 0
    if n_pairs < LEAST_PAIRS:
        raise ValueError(f"this study needs {LEAST_PAIRS} texts or more that the model can read, got {n_pairs}")
    stacks = [_probe_hf_stack(each, settings) for each in bar(states, len(states), "probing")]
    n_words = {each.stack: int(is_word(each.tokens, each.special).sum()) for each in states}
    n_unread = min(len(pairs), settings.most) - n_pairs
    scheme = f"{model.config.model_type}'s own"
    return ProbeStudy(name, scheme, n_pairs, n_unread, n_words, replace(settings, small_seeds=0), stacks, [])


def _probe_hf_stack(states: HiddenStates, settings: ProbeSettings) -> StackScores:
    points, (words,) = (
        _scores(probe_points(each, states.tokens, settings, states.special))
        for each in (states.points(), {"words": states.words})
    )
    return StackScores(states.stack, points, [], words, None)


def probe_stack(stream: Stream, embedding: Embedding, settings: ProbeSettings) -> StackScores:
    """Probe one stack of a model, its sub-layers' updates, and words and codes alone."""
    ids, positions = stream.tokens.ids, stream.tokens.positions
    updates = {f"{layer} {sublayer.replace('_', ' ')}": x for (layer, sublayer), x in stream.updates.items()}
    codes = code_vectors(embedding, positions)
    alone = {"words": word_vectors(embedding, ids), **({} if codes is None else {"codes": codes})}
    points, written, controls = (
        _scores(probe_points(each, stream.tokens, settings)) for each in (stream.points(), updates, alone)
    )
    named = {score.point: score for score in controls}
    return StackScores(stream.stack, points, written, named["words"], named.get("codes"))


def probe_points(
    vectors: dict[str, Float[Tensor, "N D"]],
    tokens: Tokens,
    settings: ProbeSettings,
    special: tuple[int, ...] = SPECIAL,
) -> Raw:
    """Return R² at each point; special tokens, such as BOS and EOS, are left out."""
    words = is_word(tokens, special)
    positions, sentences = tokens.positions[words], tokens.sentences[words]
    order = torch.randperm(len(positions), generator=torch.Generator().manual_seed(settings.seed))
    y = torch.stack([positions.double(), relative_positions(positions, sentences), positions[order].double()], dim=1)
    return {point: probe(x[words], y, sentences, settings.splits, settings.seed) for point, x in vectors.items()}


def is_word(tokens: Tokens, special: tuple[int, ...] = SPECIAL) -> Bool[Tensor, " N"]:
    """Return which tokens are neither special nor alone in their sentence."""
    is_special = torch.isin(tokens.ids, torch.tensor(special, dtype=tokens.ids.dtype))
    counts = torch.bincount(tokens.sentences[~is_special], minlength=int(tokens.sentences.max()) + 1)
    return ~is_special & (counts[tokens.sentences] > 1)


def relative_positions(positions: Int[Tensor, " N"], sentences: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return each word's position between its sentence's first, 0, and last, 1."""
    n, index = int(sentences.max()) + 1, positions.double()
    first = torch.zeros(n, dtype=torch.float64).scatter_reduce(0, sentences, index, "amin", include_self=False)
    last = torch.zeros(n, dtype=torch.float64).scatter_reduce(0, sentences, index, "amax", include_self=False)
    return (index - first[sentences]) / (last - first)[sentences]


def _probe_small(
    text: tuple[list[Ids], list[Ids], int], settings: ProbeSettings, device: str, bar: ProgressBar
) -> list[SmallScores]:
    """Probe the small models before and after training, all seeds of a kind together."""
    seeds = [settings.seed + n for n in range(settings.small_seeds)]
    losses: dict[tuple[bool, bool], list[float]] = {}
    raws: dict[tuple[bool, bool], list[dict[str, Raw]]] = {}
    src, tgt, vocab_size = text
    models = small_models(src, tgt, vocab_size, settings.small, seeds, device)
    for small in bar(models, n_small_models(seeds), "training small models"):
        kind = small.residual, small.trained
        streams = record_streams(small.model, src[: settings.most], tgt[: settings.most])
        losses.setdefault(kind, []).append(small.loss)
        raws.setdefault(kind, []).append(
            {stack: probe_points(stream.points(), stream.tokens, settings) for stack, stream in streams.items()}
        )
    return [SmallScores(*kind, mean_std(losses[kind]), _small_stacks(raws[kind])) for kind in raws]


def _small_stacks(seeds: list[dict[str, Raw]]) -> list[StackScores]:
    stacks = []
    for stack, points in seeds[0].items():
        joined = {point: torch.cat([each[stack][point] for each in seeds]) for point in points}
        stacks.append(StackScores(stack, _scores(joined), [], None, None))
    return stacks


def _scores(raw: Raw) -> list[ProbeScore]:
    return [ProbeScore(point, *(mean_std(column) for column in scores.unbind(1))) for point, scores in raw.items()]


CAPTION = (
    "R² on held-out sentences, mean ± standard deviation over the splits. position: the token's index; relative: its "
    "position between the first word, 0, and the last, 1; shuffled: positions in another order, where there is nothing "
    "to find."
)
SMALL_CAPTION = (
    "R² of the position, over splits and seeds; loss: of a held-out token, in nats. Without residual connections each "
    "sub-layer's output replaces the stream."
)
# By whether there are residual connections, and whether the model was trained.
KINDS = {
    (True, True): "with",
    (False, True): "without",
    (True, False): "with, untrained",
    (False, False): "without, untrained",
}


def tables(study: ProbeStudy) -> dict[str, Table]:
    """Return the stream, and of our own models the updates, and the small models."""
    if not study.small:
        return {"stream": stream_table(study)}
    return {"stream": stream_table(study), "updates": updates_table(study), "small-models": small_table(study)}


def stream_table(study: ProbeStudy) -> Table:
    """List the stream of both stacks, and words and codes alone."""
    title = f"Where is position? {study.model}, {study.scheme} positions, {study.n_pairs} pairs"
    table = _table(title, CAPTION, ("stack", "where", "position", "relative", "shuffled"), n_names=2)
    for stack in study.stacks:
        alone = [("codes alone", stack.codes), ("words alone", stack.words)]
        named = [(score.point, score) for score in stack.points]
        for name, score in [*((name, score) for name, score in alone if score is not None), *named]:
            table.add_row(stack.stack, name, *_cells(score))
    return table


def updates_table(study: ProbeStudy) -> Table:
    """List what each sub-layer adds to the stream, probed alone."""
    title = f"Without the stream: what each sub-layer of {study.model} adds"
    table = _table(title, "", ("stack", "sub-layer", "position", "relative", "shuffled"), n_names=2)
    for stack in study.stacks:
        for score in stack.updates:
            name = score.point.replace("feed forward", "feed-forward")
            table.add_row(stack.stack, name, *_cells(score))
    return table


def small_table(study: ProbeStudy) -> Table:
    """List the small models layer by layer."""
    small, kinds = study.settings.small, {kind(each): each for each in study.small}
    trained = f"{small.steps:,} steps, width {small.d_model}, seeds: {study.settings.small_seeds}"
    title = f"Small models with and without residual connections, trained on the same pairs: {trained}"
    table = _table(title, SMALL_CAPTION, ("stack", "where", *KINDS.values()), n_names=2)
    for number, stack in enumerate(kinds[True, True].stacks):
        for point, score in enumerate(stack.points):
            positions = [kinds[which].stacks[number].points[point].position for which in KINDS]
            table.add_row(stack.stack, score.point, *map(short, positions))
    table.add_row("both", "loss", *(short(kinds[which].loss) for which in KINDS))
    return table


def kind(small: SmallScores) -> tuple[bool, bool]:
    """Return the kind of small models: with residuals, and trained."""
    return small.residual, small.trained


def short(number: MeanStd) -> str:
    """Format a mean with its deviation."""
    return f"{number.mean:.2f} ± {number.std:.2f}".replace("-", "−")


def _table(title: str, caption: str, columns: tuple[str, ...], n_names: int) -> Table:
    table = Table(title=title, caption=caption or None, **QUIET)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < n_names else "right")
    return table


def _cells(score: ProbeScore) -> list[str]:
    return [short(each) for each in (score.position, score.relative, score.shuffled)]


LOWEST = -0.25  # R² below this is drawn at the edge
LINES = {"with": "o-", "without": "s-", "with, untrained": "o:", "without, untrained": "s:"}


@in_style
def figure(study: ProbeStudy) -> "Figure":
    """Draw the stacks of the model, and below them those of the small models, if there are any."""
    n_rows = 2 if study.small else 1
    drawing = new_figure(figsize=(5 * len(study.stacks), 3.3 * n_rows))
    axes = drawing.subplots(n_rows, len(study.stacks), sharey=True, squeeze=False)
    for panel, stack in zip(axes[0], study.stacks, strict=True):
        _draw_stack(panel, stack, f"{study.model}: {stack.stack}")
    for number, panel in enumerate(axes[1] if study.small else ()):
        for small in study.small:
            stack, name = small.stacks[number], KINDS[kind(small)]
            _curve(panel, [score.point for score in stack.points], stack.points, LINES[name], name)
        panel.set(title=f"small models, residuals: {study.small[0].stacks[number].stack}")
    for row in axes:
        row[0].set_ylabel("R² of the position, held-out sentences")
        for panel in row:
            panel.axhline(0, color="0.7", linewidth=0.8, zorder=0)
            panel.set_ylim(LOWEST - 0.05, 1.05)
            panel.legend(fontsize="small")
    return drawing


def _draw_stack(axes: "Axes", stack: StackScores, title: str) -> None:
    """Draw the stream after each layer, and between the layers what their sub-layers add."""
    names = [score.point for score in stack.points]
    _curve(axes, names, stack.points, "o-", "the stream")
    n = len(stack.updates) // max(1, len(names) - 1)
    between = [layer + (part + 1) / (n + 1) for layer in range(len(names) - 1) for part in range(n)]
    updates = [max(LOWEST, score.position.mean) for score in stack.updates]
    if updates:
        axes.plot(between, updates, "x", color=COLOURS[1], label="a sub-layer's update alone")
    for score, name, colour in ((stack.codes, "codes alone", 2), (stack.words, "words alone", 3)):
        if score is not None:
            axes.axhline(score.position.mean, linestyle="--", linewidth=1, color=COLOURS[colour], label=name)
    shuffled = [max(LOWEST, score.shuffled.mean) for score in stack.points]
    axes.plot(range(len(names)), shuffled, ".:", color="0.5", label="positions shuffled")
    axes.set(title=title)


def _curve(axes: "Axes", names: list[str], scores: list[ProbeScore], line: str, label: str) -> None:
    means = [max(LOWEST, score.position.mean) for score in scores]
    axes.errorbar(
        range(len(names)), means, [score.position.std for score in scores], fmt=line, markersize=4, label=label
    )
    axes.set_xticks(range(len(names)), names, rotation=20)
