"""`regard study permutation`: what changes when the words of a sentence are shuffled, with and without positions?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from regard.batch import make_source
from regard.build import build_model
from regard.config import PartSettings, choose
from regard.model import Seq2Seq, Transformer
from regard.padding import Ids
from regard.pipeline.translator import Translator
from regard.plot.style import in_style, new_figure
from regard.score import score, words
from regard.study.extrapolate import ExtrapolateSettings, model_settings, schemes
from regard.study.repeats import MeanStd, mean_std, signature
from regard.study.sequences import FIRST_SYMBOL, Copy, encode_pairs, eval_batch, fit, token_losses, training_batch
from regard.study.timing import one_thread
from regard.terminal import QUIET
from regard.trace.head_ablation import ProgressBar, no_progress
from regard.trace.residual import plain_transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SYMBOLS = Copy(n_symbols=20)
ENCODINGS = ["none", "sinusoidal", "learned", "t5", "rotary"]
SETTINGS = ExtrapolateSettings(
    "copy", longest=8, steps=800, rows=32, judged=256, lr=4e-3, n_encoder_layers=2, n_decoder_layers=2, d_model=32
)
QUICK = replace(SETTINGS, steps=250, judged=64, n_seeds=1)
LEAST_PAIRS = 2
N_EXAMPLES = 3


@dataclass(frozen=True)
class ShuffledResult:
    """One trained model on texts in order, and on the same texts with their words shuffled.

    `moved` is how far the encoder's outputs are from those in order, each word compared with itself, against their
    size.
    """

    encoding: str
    moved: float
    loss: float
    accuracy: float
    shuffled_loss: float
    shuffled_accuracy: float


@dataclass(frozen=True)
class ShuffledReport:
    """The same over all seeds."""

    encoding: str
    moved: MeanStd
    loss: MeanStd
    accuracy: MeanStd
    shuffled_loss: MeanStd
    shuffled_accuracy: MeanStd


@dataclass(frozen=True)
class ShuffledTranslations:
    """A translator on real sentences whose tokens are shuffled, over several shuffles.

    `bleu` is of the translations in order against the references, `shuffled_bleu` of those of shuffled sources;
    `kept_bleu` compares the latter with the former, and `kept_words` is the F1 of the words they share, in whatever
    order. `other_words` is the same of two different sentences: what is shared by chance.
    """

    model: str
    n_pairs: int
    n_unread: int
    moved: MeanStd | None  # as in ShuffledResult; None where the model has no Transformer's encoder
    bleu: float
    shuffled_bleu: MeanStd
    kept_bleu: MeanStd
    kept_words: MeanStd
    other_words: float
    examples: list[tuple[str, str, str]]  # a source, its translation, and that of its shuffled tokens


@dataclass(frozen=True)
class PermutationStudy:
    """All encodings, and a translator."""

    settings: ExtrapolateSettings
    bag_loss: float  # of a model that knows the words of a text and not their order
    encodings: list[ShuffledReport]
    translator: ShuffledTranslations
    signature: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SentencePairs:
    """A translator, and the pairs whose sources it reads in order and shuffled."""

    name: str
    translator: Translator
    pairs: Sequence[tuple[str, str]]


def run(
    names: list[str],
    sentences: SentencePairs,
    settings: ExtrapolateSettings,
    device: torch.device,
    bar: ProgressBar = no_progress,
) -> PermutationStudy:
    """Train a model to copy with each encoding and seed, and judge it on texts in order and shuffled.

    A translator reads sentences in order and shuffled as often as there are seeds.
    """
    if min(settings.steps, settings.n_seeds) < 1:
        raise ValueError(f"steps and seeds must be 1 or more, got {settings.steps} and {settings.n_seeds}")
    parts = {name: choose(schemes(settings.longest), name, "scheme") for name in names or ENCODINGS}
    seeds = range(settings.seed, settings.seed + settings.n_seeds)
    jobs = [(name, part, seed) for name, part in parts.items() for seed in seeds]
    translated = shuffle_translations(sentences, seeds, bar)
    with one_thread():
        progress = bar(jobs, len(jobs), "training")
        found = [measure(name, part, seed, settings, device) for name, part, seed in progress]
        signed = signature(str(device), seeds=settings.n_seeds, seed=settings.seed)
    # At each place one of the words that are left, all equally likely.
    bag = float(np.log(np.arange(1, settings.longest + 1)).mean())
    return PermutationStudy(settings, bag, [_over_seeds(name, found) for name in parts], translated, signed)


def measure(
    name: str, part: PartSettings, seed: int, settings: ExtrapolateSettings, device: torch.device
) -> ShuffledResult:
    """Train one model, and measure it."""
    torch.manual_seed(seed)
    model = build_model(model_settings(settings, part), (SYMBOLS.vocab_size, SYMBOLS.vocab_size)).to(device).train()
    assert isinstance(model, Transformer), "the settings are those of a Transformer"
    draw = partial(training_batch, SYMBOLS, rows=settings.rows, longest=settings.longest)
    fit(model, draw, seed, settings.steps, settings.lr)
    model.eval()
    generator = np.random.default_rng([settings.longest, 3])
    src, tgt = SYMBOLS.draw(generator, settings.judged, settings.longest)
    order = generator.permuted(np.tile(np.arange(settings.longest), (len(src), 1)), axis=1)
    shuffled = np.take_along_axis(src, order, axis=1)
    in_order, out_of_order = judge(model, src, tgt), judge(model, shuffled, tgt)
    return ShuffledResult(name, how_far(model, src, order), *in_order, *out_of_order)


@torch.no_grad()
def how_far(model: Transformer, src: NDArray[np.int64], order: NDArray[np.int64]) -> float:
    """Return how far shuffling moves the encoder's output for each word, against the size of the outputs."""
    device = next(model.parameters()).device
    before, after = (
        _encode(model, rows, device) for rows in (src, np.take_along_axis(src, order, axis=1))
    )  # (B, T, D), the end of the text left out
    rows = torch.from_numpy(order).to(device)[..., None].expand(-1, -1, before.shape[-1])
    return float((after - before.gather(1, rows)).norm() / before.norm())


def _encode(model: Transformer, rows: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    source = make_source((rows + FIRST_SYMBOL).tolist()).to(device)
    return model.encode(source)[:, : rows.shape[1]]


@torch.no_grad()
def judge(model: Transformer, src: NDArray[np.int64], tgt: NDArray[np.int64]) -> tuple[float, float]:
    """Return loss and accuracy on the targets, given these sources, under teacher forcing."""
    batch = eval_batch(src, tgt).to(next(model.parameters()).device)
    losses, right = token_losses(model(batch), batch)
    return float(losses.mean()), float(right.mean())


def shuffle_translations(
    sentences: SentencePairs, seeds: Sequence[int], bar: ProgressBar = no_progress
) -> ShuffledTranslations:
    """Translate sentences greedily, in order and with their tokens shuffled, once for each seed."""
    translator = sentences.translator
    text = encode_pairs(translator, sentences.pairs, LEAST_PAIRS)
    references = [tgt for _, tgt in text.pairs]
    in_order = translate_ids(translator, text.src)
    shuffled, moved = [], []
    for seed in bar(seeds, len(seeds), "translating"):
        orders = [np.random.default_rng([seed, n]).permutation(len(ids)) for n, ids in enumerate(text.src)]
        shuffled.append(translate_ids(translator, [_reorder(*each) for each in zip(text.src, orders, strict=True)]))
        moved.append(sentences_moved(translator.model, text.src, orders))
    language = translator.tgt_lang
    away = in_order[1:] + in_order[:1]  # each sentence beside another's translation
    examples = [(src, one, other) for (src, _), one, other in zip(text.pairs, in_order, shuffled[0], strict=True)]
    return ShuffledTranslations(
        model=sentences.name,
        n_pairs=len(references),
        n_unread=text.n_unread,
        moved=mean_std([each for each in moved if each is not None]) if None not in moved else None,
        bleu=score(in_order, references, language).bleu,
        shuffled_bleu=mean_std([score(each, references, language).bleu for each in shuffled]),
        kept_bleu=mean_std([score(each, in_order, language).bleu for each in shuffled]),
        kept_words=mean_std([shared_words(each, in_order, language) for each in shuffled]),
        other_words=shared_words(away, in_order, language),
        examples=examples[:N_EXAMPLES],
    )


def translate_ids(translator: Translator, src: Sequence[Ids]) -> list[str]:
    """Return the greedy translation of each source, whatever the order of its tokens."""
    found = dict(translator.engine.search(src, replace(translator.settings, method="greedy", n_best=1)))
    return [translator.tokenizer.decode(found[n][0].ids) for n in range(len(src))]


def _reorder(ids: Ids, order: NDArray[np.int64]) -> list[int]:
    return [int(ids[n]) for n in order]


@torch.no_grad()
def sentences_moved(model: Seq2Seq, src: Sequence[Ids], orders: Sequence[NDArray[np.int64]]) -> float | None:
    """Return how far shuffling moves a Transformer's outputs for real sentences, as `how_far` does; None for others."""
    if type(model) is not Transformer:
        return None
    plain, moved, size = plain_transformer(model), 0.0, 0.0
    device = next(plain.parameters()).device
    for ids, order in zip(src, orders, strict=True):
        before, after = (
            plain.encode(make_source([row]).to(device))[0, : len(ids)] for row in (ids, _reorder(ids, order))
        )
        moved += float((after - before[torch.from_numpy(order).to(device)]).square().sum())
        size += float(before.square().sum())
    return (moved / size) ** 0.5


def shared_words(outputs: Sequence[str], others: Sequence[str], language: str) -> float:
    """Return the mean F1 of the words in common, each counted as often as it occurs; characters for Chinese."""
    spaced = words(language) == "13a"
    found = []
    for one, other in zip(outputs, others, strict=True):
        a, b = (Counter(text.lower().split() if spaced else text.replace(" ", "")) for text in (one, other))
        found.append(2 * (a & b).total() / max(1, a.total() + b.total()))
    return float(np.mean(found))


def _over_seeds(name: str, found: list[ShuffledResult]) -> ShuffledReport:
    own = [each for each in found if each.encoding == name]
    measures = ("moved", "loss", "accuracy", "shuffled_loss", "shuffled_accuracy")
    return ShuffledReport(name, *(mean_std([getattr(each, measure) for each in own]) for measure in measures))


@in_style
def figure(study: PermutationStudy) -> "Figure":
    """Draw how far outputs move, accuracy in order and shuffled, and what is left of translations."""
    drawing = new_figure(figsize=(13, 3.6))
    moved, accuracy, kept = drawing.subplots(1, 3)
    names, at = [each.encoding for each in study.encodings], np.arange(len(study.encodings))
    moved.bar(names, [each.moved.mean for each in study.encodings])
    moved.set(title="How far shuffling moves the encoder's outputs", ylabel="relative to their size")
    for shift, (label, measure) in enumerate({"in order": "accuracy", "shuffled": "shuffled_accuracy"}.items()):
        heights = [getattr(each, measure).mean for each in study.encodings]
        accuracy.bar(at + 0.4 * shift - 0.2, heights, 0.4, label=label)
    accuracy.set(title="Share of words copied in their order", xticks=at, xticklabels=names)
    accuracy.legend(fontsize="small")
    found = study.translator
    bars = {"in order": found.bleu, "shuffled": found.shuffled_bleu.mean, "against in order": found.kept_bleu.mean}
    kept.bar(list(bars), list(bars.values()))
    kept.set(title=f"BLEU of {found.model}'s translations")
    return drawing


def tables(study: PermutationStudy) -> dict[str, Table]:
    """Return what shuffling changes with each encoding, and in the translations of real sentences."""
    settings = study.settings
    caption = (
        "Moved: distance of the encoder's outputs from those in order, each word compared with itself, against their "
        "size. Loss: mean −log p of a word of the target in its order, then the share of right words. A model that "
        f"knows the words and not their order has a loss of {study.bag_loss:.3f}."
    )
    title = f"Texts of {settings.longest} words, copied from a source in order and from a shuffled one"
    table = Table(title=f"{title}, {settings.n_seeds} seeds", caption=caption, **QUIET)
    table.add_column("encoding", no_wrap=True)
    for column in ("moved", "in order", "shuffled"):
        table.add_column(column, justify="right")
    for each in study.encodings:
        table.add_row(
            each.encoding,
            f"{each.moved.mean:.0e}" if each.moved.mean < 1e-3 else each.moved.format(2),
            f"{each.loss.format(3)} · {each.accuracy.mean:.0%}",
            f"{each.shuffled_loss.format(3)} · {each.shuffled_accuracy.mean:.0%}",
        )
    return {"shuffled": table, "translations": translations_table(study.translator)}


def translations_table(found: ShuffledTranslations) -> Table:
    """Return what shuffled tokens do to the translations of real sentences."""
    caption = (
        "BLEU against the references, and of the shuffled sources' translations against those in order; shared words: "
        "F1 of the words in common with the translation in order, and with that of another sentence, which is chance."
    )
    title = f"{found.n_pairs} sentences translated by {found.model} in order and with their tokens shuffled"
    table = Table(title=title, caption=caption, **QUIET)
    columns = ("moved", "BLEU in order", "BLEU shuffled", "BLEU against in order", "shared words", "by chance")
    for column in columns:
        table.add_column(column, justify="right")
    table.add_row(
        "–" if found.moved is None else found.moved.format(2),
        f"{found.bleu:.1f}",
        found.shuffled_bleu.format(1),
        found.kept_bleu.format(1),
        found.kept_words.format(2),
        f"{found.other_words:.2f}",
    )
    return table
