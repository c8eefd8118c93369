"""Trials of a classifier, one for each encoding and seed: the run, the table, bars, attention over inputs."""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.table import Table
from torch import Tensor

from regard.plot.style import COLOURS, rgb
from regard.shapes import Float, Int, Shaped
from regard.study.repeats import MeanStd, default_jobs, mean_std, run_jobs, signature
from regard.study.task import (
    Classifier,
    Encoding,
    Task,
    TaskSettings,
    accuracy,
    coordinates,
    make_model,
    oracle_accuracy,
    parse_encoding,
    read,
)
from regard.terminal import QUIET
from regard.trace.attention import RecordedAttention
from regard.trace.head_ablation import ProgressBar, no_progress
from regard.trace.replay import Recorder
from regard.train.examples import EpochResult, train_on_examples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHUFFLE_SEED = 12345  # of the control's order, the same in every trial


@dataclass(frozen=True)
class Trial:
    """Accuracies after one training; the model is that of the epoch with the best validation accuracy."""

    encoding: Encoding = field(metadata={"json": "told"})
    seed: int
    parameters: int
    valid: float
    test: float
    shuffled: float  # on the test, with the tokens of each example permuted while the positions stay
    lessons: list[EpochResult]


def run_trial(
    task: Task, encoding: Encoding, settings: TaskSettings, seed: int, device: torch.device
) -> tuple[Trial, Classifier]:
    """Train once, and keep the epoch with the best validation accuracy."""
    model = make_model(task, encoding, settings, seed).to(device)
    train, valid, test = (part.to(device) for part in (task.train, task.valid, task.test))
    draws = torch.Generator().manual_seed(seed)

    def loss(numbers: Tensor) -> Tensor:
        batch = train.some(numbers.to(device))
        if task.vary is not None:
            batch = replace(batch, tokens=task.vary(batch.tokens, draws))
        return F.cross_entropy(read(model, task, encoding, batch), batch.labels)

    def judge() -> float:
        return accuracy(model, task, encoding, valid)

    learn = replace(settings.learn, seed=seed)
    lessons = list(train_on_examples(model, len(train), loss, judge, learn))
    trial = Trial(
        encoding=encoding,
        seed=seed,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        valid=max(lesson.score for lesson in lessons),
        test=accuracy(model, task, encoding, test),
        shuffled=accuracy(model, task, encoding, test.shuffled(SHUFFLE_SEED)),
        lessons=lessons,
    )
    return trial, model


@dataclass(frozen=True)
class TrialJob:
    """One trial: what its process needs, and where it leaves its result."""

    encoding: Encoding
    seed: int
    settings: TaskSettings
    device: str
    task: Path
    result: Path


def run_trials(
    task: Task,
    encodings: Sequence[Encoding],
    settings: TaskSettings,
    seeds: Sequence[int],
    device: torch.device,
    n_parallel: int,
) -> Iterator[tuple[Trial, Classifier]]:
    """Train every encoding with every seed, `n_parallel` at a time with one thread each; yield each as it ends."""
    with TemporaryDirectory(prefix="regard-trials-") as name:
        folder = Path(name)
        torch.save(task, folder / "task.pt")
        chosen = enumerate((encoding, seed) for encoding in encodings for seed in seeds)
        about = settings, str(device), folder / "task.pt"
        jobs = [TrialJob(*each, *about, folder / f"{number}.pt") for number, each in chosen]
        for job, code in run_jobs(run_trial_job, jobs, n_parallel):
            if code:
                raise RuntimeError(f"training {job.encoding.name} with seed {job.seed} ended with exit code {code}")
            trial, weights = torch.load(job.result, weights_only=False)  # what our own process wrote
            model = make_model(task, job.encoding, settings, job.seed)
            model.load_state_dict(weights)
            yield trial, model.to(device)


def run_trial_job(job: TrialJob) -> None:
    """Run one trial in this process, and leave its result in a file."""
    torch.set_num_threads(1)
    task: Task = torch.load(job.task, weights_only=False)  # what the parent wrote
    trial, model = run_trial(task, job.encoding, job.settings, job.seed, torch.device(job.device))
    torch.save((trial, model.cpu().state_dict()), job.result)


def classifier_attention(
    model: Classifier, tokens: Shaped[Tensor, "1 T *P"], positions: Int[Tensor, "1 T *axes"]
) -> tuple[RecordedAttention, ...]:
    """Record the attention of every layer, on a copy of the model."""
    copy: Any = deepcopy(model).eval()
    recorder = Recorder()
    for number, layer in enumerate(copy.encoder.layers):
        recorder.record_heads(layer.attention, "encoder", number)
    with torch.no_grad():
        copy(tokens, positions)
    return tuple(recording.attention_map() for recording in recorder.recordings)


def class_weights(
    model: Classifier, tokens: Shaped[Tensor, "1 T *P"], positions: Int[Tensor, "1 T *axes"]
) -> Float[Tensor, "L H T"]:
    """Return how much the class token attends to each other token, or, for a mean pool, all tokens on average.

    The class token's weight on itself is left out.
    """
    weights = torch.stack([each.weights() for each in classifier_attention(model, tokens, positions)])  # (L, H, Q, K)
    return weights.mean(dim=2) if model.own_token is None else weights[:, :, 0, 1:]


@dataclass(frozen=True)
class EncodingReport:
    """One position encoding, over the seeds."""

    name: str
    coordinates: tuple[str, ...]
    parameters: int
    # No model that reads sets and receives these coordinates can exceed it on this very test set.
    oracle_accuracy: float = field(metadata={"json": "bound"})
    valid: MeanStd
    test: MeanStd
    shuffled: MeanStd
    trials: list[Trial]


@dataclass(frozen=True, eq=False)
class ShownExample:
    """One test example with the attention of the first encoding's first model, and its prediction."""

    number: int
    tokens: Shaped[Tensor, " T *P"]
    positions: Int[Tensor, "T A"] = field(metadata={"json": "places"})
    weights: Float[Tensor, "L H T"]
    label: str = field(metadata={"json": "right"})
    prediction: str = field(metadata={"json": "said"})


@dataclass(frozen=True, eq=False)
class TaskStudy:
    """The result, with all that could move it."""

    task: str
    classes: tuple[str, ...]
    axes: tuple[str, ...]
    n_train: int
    n_valid: int
    n_test: int
    chance: float  # accuracy of guessing
    settings: TaskSettings
    rows: list[EncodingReport]
    examples: list[ShownExample] = field(metadata={"json": "seen"})
    signature: dict[str, Any]

    def row(self, name: str) -> EncodingReport | None:
        """Find an encoding by its name."""
        return next((row for row in self.rows if row.name == name), None)


def run_task(
    task: Task,
    encodings: Iterable[str],
    settings: TaskSettings,
    seeds: Sequence[int],
    device: torch.device,
    shown: Sequence[int],
    bar: ProgressBar = no_progress,
) -> TaskStudy:
    """Train every encoding with every seed, as many trials at a time as the machine can take, and summarise."""
    if not seeds:
        raise ValueError("--seeds must be 1 or more, got 0")
    parsed = [parse_encoding(each, task.axes) for each in encodings]
    trials = run_trials(task, parsed, settings, seeds, device, default_jobs(device.type))
    results = list(bar(trials, len(parsed) * len(seeds), "training"))
    results.sort(key=lambda each: (parsed.index(each[0].encoding), each[0].seed))
    return summarise_trials(task, settings, results, shown)


def summarise_trials(
    task: Task, settings: TaskSettings, results: Sequence[tuple[Trial, Classifier]], shown: Sequence[int]
) -> TaskStudy:
    """Summarise trials by encoding, in the order in which they came, and look into the first model."""
    encodings = list(dict.fromkeys(trial.encoding for trial, _ in results))
    rows = [_report(task, each, [trial for trial, _ in results if trial.encoding == each]) for each in encodings]
    (first, model), device = results[0], next(results[0][1].parameters()).device
    seeds = list(dict.fromkeys(trial.seed for trial, _ in results))
    return TaskStudy(
        task=task.name,
        classes=task.classes,
        axes=task.axes,
        n_train=len(task.train),
        n_valid=len(task.valid),
        n_test=len(task.test),
        chance=1 / len(task.classes),
        settings=settings,
        rows=rows,
        examples=[show_example(task, first.encoding, model, number) for number in shown],
        signature=signature(device.type, seeds=seeds),
    )


def _report(task: Task, encoding: Encoding, trials: list[Trial]) -> EncodingReport:
    return EncodingReport(
        name=encoding.name,
        coordinates=encoding.coordinates,
        parameters=trials[0].parameters,
        oracle_accuracy=oracle_accuracy(task.test, coordinates(encoding, task.axes, task.test.positions)),
        valid=mean_std(trial.valid for trial in trials),
        test=mean_std(trial.test for trial in trials),
        shuffled=mean_std(trial.shuffled for trial in trials),
        trials=trials,
    )


@torch.no_grad()
def show_example(task: Task, encoding: Encoding, model: Classifier, number: int) -> ShownExample:
    """Run the model on one example of the test, without its padding, and keep its attention."""
    one = task.test.some(torch.tensor([number]))
    length = int(one.lengths[0])
    device = next(model.parameters()).device
    tokens, positions = one.tokens[:, :length], one.positions[:, :length]
    inputs = tokens.to(device), coordinates(encoding, task.axes, positions).to(device)
    model.eval()
    predicted = int(model(*inputs).argmax())
    weights, label = class_weights(model, *inputs), task.classes[int(one.labels[0])]
    return ShownExample(number, tokens[0], positions[0], weights, label, task.classes[predicted])


CAPTION = (
    "Accuracy in %; test: mean ± standard deviation over the seeds, each model at its best validation epoch; upper "
    "bound: what no model that reads sets and receives these coordinates can exceed on this test; shuffled: the same "
    "models, the tokens of each test example permuted while the positions stay."
)


def accuracy_tables(study: TaskStudy) -> dict[str, Table]:
    """Return the accuracy of every encoding."""
    seeds = len(study.rows[0].trials)
    sizes = f"{study.n_train:,} for training, {study.n_valid:,} for validation, {study.n_test:,} for testing"
    title = f"{study.task.capitalize()} of {len(study.classes)} classes: {sizes}, {seeds} seed{'s' * (seeds > 1)}"
    table = Table(title=title, caption=CAPTION, **QUIET)
    for column in ("positions", "coordinates", "parameters", "valid", "test", "upper\nbound", "shuffled"):
        table.add_column(column, justify="left" if column in {"positions", "coordinates"} else "right")
    for row in study.rows:
        table.add_row(*_cells(row))
    return {"accuracy": table}


def _cells(row: EncodingReport) -> list[str]:
    test = f"{100 * row.test.mean:.1f} ± {100 * row.test.std:.1f}"
    accuracies = f"{100 * row.valid.mean:.1f}", test, f"{100 * row.oracle_accuracy:.1f}"
    received = ", ".join(row.coordinates) or "nothing"
    scheme = row.name.partition(":")[0]
    return [scheme, received, f"{row.parameters:,}", *accuracies, f"{100 * row.shuffled.mean:.1f}"]


def draw_bars(axes: "Axes", study: TaskStudy) -> None:
    """Draw the mean of each encoding, its seeds as dots, the upper bound as a line, and guessing."""
    for place, row in enumerate(study.rows):
        axes.barh(place, 100 * row.test.mean, height=0.6, color=COLOURS[5])
        dots = [100 * trial.test for trial in row.trials]
        axes.plot(dots, [place] * len(dots), "o", markersize=3, color=COLOURS[0])
        axes.plot([100 * row.oracle_accuracy] * 2, [place - 0.4, place + 0.4], color=COLOURS[1], linewidth=2)
        axes.annotate(f" {100 * row.test.mean:.1f}", (1, place), color="white", va="center")
    axes.axvline(100 * study.chance, linestyle=":", color="black", linewidth=1)
    axes.set_yticks(range(len(study.rows)), [_label(row) for row in study.rows])
    axes.invert_yaxis()
    axes.set(xlim=(0, 102), title="test accuracy, %\ndots: seeds; orange: upper bound; dotted: guessing")


def _label(row: EncodingReport) -> str:
    received = ", ".join(row.coordinates)
    return f"{row.name.partition(':')[0]}\n({received})" if received else row.name


def attention_title(study: TaskStudy) -> str:
    """Say whose weights a figure shows."""
    whose = {"class": "attention of the class token", "mean": "mean attention of all tokens"}[study.settings.pool]
    first = study.rows[0]
    return f"{whose}: {first.name}, seed {first.trials[0].seed}"


INK = COLOURS[1]
STRONGEST = 0.85  # opacity of the largest weight


def draw_over(
    axes: "Axes",
    picture: Float[Tensor, "rows columns"],
    shades: tuple[float, float],
    weights: Float[Tensor, "r c"] | None = None,
    largest: float = 1.0,
) -> None:
    """Draw a picture in greys and, where there are weights, a colour over each patch, as opaque as its weight."""
    rows, columns = picture.shape
    extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    axes.imshow(picture.numpy(), cmap="Greys", vmin=shades[0], vmax=shades[1], interpolation="nearest", extent=extent)
    if weights is not None:
        axes.imshow(overlay(weights, largest), interpolation="nearest", extent=extent)
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_linewidth(0.4)


def overlay(weights: Float[Tensor, "r c"], largest: float) -> Float[np.ndarray, "r c 4"]:
    """Return the colour of each patch, transparent where its weight is 0."""
    opacity = (weights / largest).clamp(0, 1).numpy() * STRONGEST
    colour = np.broadcast_to(np.array(rgb(INK)), (*opacity.shape, 3))
    return np.concatenate([colour, opacity[..., None]], axis=-1)
