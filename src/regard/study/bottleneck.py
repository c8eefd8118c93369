"""`regard study bottleneck`: a sequence-to-sequence model with and without attention, by the length of the sentence."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.table import Table

from regard.batch import Batch, make_batch
from regard.build import build_model
from regard.config import DecodeSettings, ModelSettings, PartSettings, TextSettings
from regard.data.vocabulary import train_tokenizer
from regard.engine import select_engine
from regard.model import Seq2Seq
from regard.padding import Ids
from regard.plot.style import in_style, new_figure
from regard.score import score
from regard.study.repeats import MeanStd, mean_std, signature
from regard.study.sequences import Copy, eval_batch, fit, judge_tokens, training_batch
from regard.study.timing import one_thread
from regard.terminal import QUIET
from regard.trace.head_ablation import ProgressBar, no_progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTEXTS = {"attention": "additive", "last state": "none"}  # the attention of each model
N_TESTS = 500  # held-out pairs of a text at most, a tenth of all
LEAST_PAIRS = 40
VOCAB_SIZE = 4000
SYMBOLS = Copy(n_symbols=40)


@dataclass(frozen=True)
class BottleneckSettings:
    """The models and their training."""

    longest: int = 24  # symbols of a copied text
    lengths: tuple[int, ...] = (2, 4, 8, 12, 16, 20, 24)  # at which copies are judged
    groups: int = 5  # of sentences by length, where a text is given
    d_model: int = 64
    steps: int = 1200
    rows: int = 32  # texts in a batch
    judged: int = 256  # test texts of each length
    lr: float = 5e-3
    n_seeds: int = 3
    seed: int = 0  # of the first


SETTINGS = BottleneckSettings()
QUICK = replace(SETTINGS, longest=10, lengths=(2, 4, 7, 10), steps=350, judged=64, n_seeds=1)


@dataclass(frozen=True)
class GroupResult:
    """One model on the test texts of one group: mean −log p of a token, and the share of the most likely that is right.

    BLEU where the text is words.
    """

    label: str
    loss: float
    accuracy: float
    bleu: float | None


@dataclass(frozen=True)
class GroupReport:
    """The same over all seeds."""

    label: str
    loss: MeanStd
    accuracy: MeanStd
    bleu: MeanStd | None


@dataclass(frozen=True)
class ContextReport:
    """One model by groups of sentences; parameters in all."""

    context: str
    parameters: int
    groups: list[GroupReport]


@dataclass(frozen=True)
class BottleneckStudy:
    """Both models."""

    settings: BottleneckSettings
    task: str
    contexts: list[ContextReport]
    signature: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LengthTask:
    """What both models learn, and how they are judged on each group of test texts."""

    name: str
    vocab_size: int
    draw: Callable[[np.random.Generator], Batch]
    judge: Callable[[Seq2Seq], list[GroupResult]]


def run(
    pairs: Sequence[tuple[str, str]] | None,
    languages: tuple[str, str],
    settings: BottleneckSettings,
    device: torch.device,
    bar: ProgressBar = no_progress,
) -> BottleneckStudy:
    """Train both models with each seed on copies, or on sentence pairs, and judge them by length."""
    check_bottleneck(settings)
    seeds = range(settings.seed, settings.seed + settings.n_seeds)
    with one_thread():
        task = copies(settings) if pairs is None else translations(pairs, languages, settings)
        jobs = [(context, seed) for context in CONTEXTS for seed in seeds]
        results: dict[str, list[list[GroupResult]]] = {context: [] for context in CONTEXTS}
        parameters = {}
        for context, seed in bar(jobs, len(jobs), "training"):
            model = train_context(context, task, seed, settings, device)
            parameters[context] = sum(each.numel() for each in model.parameters())
            results[context].append(task.judge(model))
        signed = signature(str(device), seeds=settings.n_seeds, seed=settings.seed)
    reports = [ContextReport(name, parameters[name], _over_seeds(found)) for name, found in results.items()]
    return BottleneckStudy(settings, task.name, reports, signed)


def check_bottleneck(settings: BottleneckSettings) -> None:
    """Raise ValueError for settings with which nothing could be measured."""
    least = min(settings.steps, settings.n_seeds, settings.rows, settings.longest, settings.d_model // 2)
    if least < 1:
        got = f"{settings.steps}, {settings.n_seeds}, {settings.longest} and {settings.d_model}"
        raise ValueError(f"steps, seeds and length must be 1 or more and width 2 or more, got {got}")
    if settings.longest > (most := SYMBOLS.n_symbols):
        raise ValueError(f"length must be {most} or less, as no symbol is copied twice, got {settings.longest}")


def train_context(
    context: str, task: LengthTask, seed: int, settings: BottleneckSettings, device: torch.device
) -> Seq2Seq:
    """Train one model; texts and their order depend on the seed alone."""
    torch.manual_seed(seed)
    sizes = (task.vocab_size, task.vocab_size)
    model = build_model(model_settings(context, settings), sizes).to(device).train()
    fit(model, task.draw, seed, settings.steps, settings.lr)
    return model.eval()


def model_settings(context: str, settings: BottleneckSettings) -> ModelSettings:
    """Return a recurrent model with one layer a side; nothing but the attention differs."""
    return ModelSettings(
        family="recurrent",
        n_encoder_layers=1,
        n_decoder_layers=1,
        d_model=settings.d_model,
        n_heads=1,
        dropout=0.0,
        attention=PartSettings(CONTEXTS[context]),
        position=PartSettings("none"),
    )


def copies(settings: BottleneckSettings) -> LengthTask:
    """Return the task of copying symbols, none of which repeats: each costs the decoder the same at any length."""

    def judge(model: Seq2Seq) -> list[GroupResult]:
        groups = []
        for length in (length for length in settings.lengths if length <= settings.longest):
            src, tgt = SYMBOLS.draw(np.random.default_rng([length, 2]), settings.judged, length)
            groups.append(GroupResult(str(length), *judge_tokens(model, [eval_batch(src, tgt)]), None))
        return groups

    def draw(generator: np.random.Generator) -> Batch:
        return training_batch(SYMBOLS, generator, settings.rows, settings.longest, shortest=1)

    return LengthTask("copies", SYMBOLS.vocab_size, draw, judge)


def translations(
    pairs: Sequence[tuple[str, str]], languages: tuple[str, str], settings: BottleneckSettings
) -> LengthTask:
    """Return the task of translating held-out pairs of a text, grouped by the length of the source."""
    if len(pairs) < LEAST_PAIRS:
        raise ValueError(f"this study needs {LEAST_PAIRS} sentence pairs or more, got {len(pairs)}")
    order = np.random.default_rng(settings.seed).permutation(len(pairs))
    n_tests = min(N_TESTS, max(settings.groups, len(pairs) // 10))
    held, learned = [pairs[n] for n in order[:n_tests]], [pairs[n] for n in order[n_tests:]]
    tokenizer = train_tokenizer(learned, TextSettings(vocab_size=VOCAB_SIZE), lambda _: None, settings.seed)
    encoded_src = tokenizer.encode_batch([src for src, _ in learned], "src")
    encoded_tgt = tokenizer.encode_batch([tgt for _, tgt in learned], "tgt")
    tested = sorted(((tokenizer.encode(src, "src"), tokenizer.encode(tgt, "tgt"), tgt) for src, tgt in held), key=_size)

    def judge(model: Seq2Seq) -> list[GroupResult]:
        groups = []
        for some in np.array_split(np.arange(len(tested)), settings.groups):
            src, tgt, texts = zip(*(tested[n] for n in some), strict=True)
            outputs = [tokenizer.decode(ids) for ids in translate(model, src)]
            loss, accuracy = judge_tokens(model, [make_batch(src, tgt)])
            label = f"{len(src[0])}–{len(src[-1])}"
            groups.append(GroupResult(label, loss, accuracy, score(outputs, texts, languages[1]).bleu))
        return groups

    def draw(generator: np.random.Generator) -> Batch:
        chosen = generator.integers(len(learned), size=settings.rows)
        return make_batch([encoded_src[n] for n in chosen], [encoded_tgt[n] for n in chosen])

    return LengthTask("translations", tokenizer.vocab_size("src"), draw, judge)


def _size(example: tuple[Ids, Ids, str]) -> int:
    return len(example[0])


def translate(model: Seq2Seq, src: Sequence[Ids]) -> Iterator[Ids]:
    """Yield the greedy translation of each source, in order."""
    found = dict(select_engine(model, "float32").search(src, DecodeSettings(method="greedy")))
    for number in range(len(src)):
        yield found[number][0].ids


def _over_seeds(found: list[list[GroupResult]]) -> list[GroupReport]:
    reports = []
    for groups in zip(*found, strict=True):
        scores = [group.bleu for group in groups if group.bleu is not None]
        loss, accuracy = mean_std([group.loss for group in groups]), mean_std([group.accuracy for group in groups])
        reports.append(GroupReport(groups[0].label, loss, accuracy, mean_std(scores) if scores else None))
    return reports


@in_style
def figure(study: BottleneckStudy) -> "Figure":
    """Draw loss and accuracy, and BLEU where there is one, against the length of the sentence."""
    measures = {"loss": "−log p of a token", "accuracy": "share of right tokens", "bleu": "BLEU"}
    if study.contexts[0].groups[0].bleu is None:
        del measures["bleu"]
    drawing = new_figure(figsize=(4.6 * len(measures), 3.8))
    for axes, (name, title) in zip(np.atleast_1d(drawing.subplots(1, len(measures))), measures.items(), strict=True):
        for context in study.contexts:
            found = [getattr(group, name) for group in context.groups]
            labels = [group.label for group in context.groups]
            spread = [each.std for each in found]
            axes.errorbar(labels, [each.mean for each in found], yerr=spread, fmt="o-", label=context.context)
        axes.set(title=title, xlabel="length of the source, in tokens")
        axes.legend(fontsize="small")
    return drawing


def tables(study: BottleneckStudy) -> dict[str, Table]:
    """Return loss, accuracy and BLEU of both models for each group of lengths."""
    settings = study.settings
    sizes = ", ".join(f"{context.context} {context.parameters:,}" for context in study.contexts)
    caption = (
        f"Mean −log p of a token · share of tokens whose most likely is right{' · BLEU' if _has_bleu(study) else ''}; "
        f"{settings.n_seeds} seeds. Parameters: {sizes}."
    )
    title = f"What the decoder knows of the source, by its length: {study.task}, states of width {settings.d_model}"
    table = Table(title=title, caption=caption, **QUIET)
    table.add_column("length", no_wrap=True)
    for context in study.contexts:
        table.add_column(context.context, justify="right")
    for groups in zip(*(context.groups for context in study.contexts), strict=True):
        table.add_row(groups[0].label, *map(_cell, groups))
    return {"lengths": table}


def _has_bleu(study: BottleneckStudy) -> bool:
    return study.contexts[0].groups[0].bleu is not None


def _cell(group: GroupReport) -> str:
    text = f"{group.loss.format(3)} · {group.accuracy.mean:.1%}"
    return text if group.bleu is None else f"{text} · {group.bleu.format(1)}"
