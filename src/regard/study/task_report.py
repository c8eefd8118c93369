"""Table, bars, attention over inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from rich.table import Table
from torch import Tensor

from regard.plot.style import COLOURS
from regard.plot.terminal import QUIET
from regard.study.stats import Spread, signature, spread
from regard.study.task import Task, Told, best_possible, tell
from regard.study.trials import Classifier, TaskSettings, Trial, class_weights


@dataclass(frozen=True)
class Row:
    """One way of telling places, over the seeds."""

    name: str
    coordinates: tuple[str, ...]
    parameters: int
    bound: float  # no reader of sets that is told these coordinates can be right more often, on this very test
    valid: Spread
    test: Spread
    shuffled: Spread
    trials: list[Trial]


@dataclass(frozen=True, eq=False)
class Seen:
    """What the first way's first model looked at in one test example, and what it said."""

    number: int
    tokens: Shaped[Tensor, "T *P"]
    places: Int[Tensor, "T A"]
    weights: Float[Tensor, "L H T"]
    right: str
    said: str


@dataclass(frozen=True, eq=False)
class TaskStudy:
    """All of it, with what it was measured by."""

    task: str
    classes: tuple[str, ...]
    axes: tuple[str, ...]
    n_train: int
    n_valid: int
    n_test: int
    chance: float  # how often blind guessing is right
    settings: TaskSettings
    rows: list[Row]
    seen: list[Seen]
    signature: dict[str, Any]

    def row(self, name: str) -> Row | None:
        """Finds a way by its name."""
        return next((row for row in self.rows if row.name == name), None)


def conclude(
    task: Task, settings: TaskSettings, found: Sequence[tuple[Trial, Classifier]], show: Sequence[int]
) -> TaskStudy:
    """Sums trials up by their way, in the order in which they came, and looks into the first model."""
    ways = list(dict.fromkeys(trial.told for trial, _ in found))
    rows = [_row(task, told, [trial for trial, _ in found if trial.told == told]) for told in ways]
    (first, model), device = found[0], next(found[0][1].parameters()).device
    seeds = list(dict.fromkeys(trial.seed for trial, _ in found))
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
        seen=[see(task, first.told, model, number) for number in show],
        signature=signature(device.type, seeds=seeds),
    )


def _row(task: Task, told: Told, trials: list[Trial]) -> Row:
    return Row(
        name=told.name,
        coordinates=told.coordinates,
        parameters=trials[0].parameters,
        bound=best_possible(task.test, tell(told, task.axes, task.test.places)),
        valid=spread(trial.valid for trial in trials),
        test=spread(trial.test for trial in trials),
        shuffled=spread(trial.shuffled for trial in trials),
        trials=trials,
    )


@torch.no_grad()
def see(task: Task, told: Told, model: Classifier, number: int) -> Seen:
    """Looks at the model while it reads one example of the test, without its padding."""
    one = task.test.some(torch.tensor([number]))
    length = int(one.lengths[0])
    device = next(model.parameters()).device
    tokens = one.tokens[:, :length]
    places = one.places[:, :length]
    inputs = tokens.to(device), tell(told, task.axes, places).to(device)
    model.eval()
    said = int(model(*inputs).argmax())
    weights = class_weights(model, *inputs)
    right = task.classes[int(one.labels[0])]
    return Seen(number, tokens[0], places[0], weights, right, task.classes[said])


def draw_bars(axes: Axes, study: TaskStudy) -> None:
    """Draws the mean of each way, its seeds as dots, what is possible as a line, and blind guessing."""
    for place, row in enumerate(study.rows):
        axes.barh(place, 100 * row.test.mean, height=0.6, color=COLOURS[5])
        dots = [100 * trial.test for trial in row.trials]
        axes.plot(dots, [place] * len(dots), "o", markersize=3, color=COLOURS[0])
        axes.plot([100 * row.bound] * 2, [place - 0.4, place + 0.4], color=COLOURS[1], linewidth=2)
        axes.annotate(f" {100 * row.test.mean:.1f}", (1, place), color="white", va="center")
    axes.axvline(100 * study.chance, linestyle=":", color="black", linewidth=1)
    axes.set_yticks(range(len(study.rows)), [way_name(row) for row in study.rows])
    axes.invert_yaxis()
    axes.set(xlim=(0, 102), title="right on the test, %\ndots: seeds; orange: the most there can be; dotted: guessing")


def way_name(row: Row) -> str:
    """Names a way with what it is told."""
    told = ", ".join(row.coordinates)
    return f"{row.name.partition(':')[0]}\n({told})" if told else row.name


def who_looks(study: TaskStudy) -> str:
    """Says whose weights a figure shows."""
    looker = {"class": "the class token looks", "mean": "all tokens look on average"}[study.settings.pool]
    first = study.rows[0]
    return f"where {looker}: {first.name}, seed {first.trials[0].seed}"


CAPTION = (
    "right in %, test: mean ± standard deviation over the seeds, each model as it was when validation was best; at "
    "most: what no reader of sets that is told these coordinates can exceed on this test; shuffled: the same models, "
    "the tokens of each test example in another order while the places stay."
)


def task_table(study: TaskStudy) -> Table:
    """Lists the ways of telling places."""
    seeds = len(study.rows[0].trials)
    sizes = f"{study.n_train:,} to learn from, {study.n_valid:,} to choose by, {study.n_test:,} to test"
    title = f"{study.task} of {len(study.classes)} classes, {sizes}, {seeds} seed{'s' * (seeds > 1)}"
    table = Table(title=title, caption=CAPTION, **QUIET)
    for column in ("positions", "told", "parameters", "valid", "test", "at most", "shuffled"):
        table.add_column(column, justify="left" if column in {"positions", "told"} else "right")
    for row in study.rows:
        table.add_row(*_cells(row))
    return table


def percent(share: float) -> str:
    """Writes a share as a percentage."""
    return f"{100 * share:.1f} %"


def spread_percent(share: Spread) -> str:
    """Writes a mean with its spread in percent."""
    return f"{100 * share.mean:.1f} ± {100 * share.spread:.1f}"


def _cells(row: Row) -> list[str]:
    shares = (f"{100 * row.valid.mean:.1f}", spread_percent(row.test), f"{100 * row.bound:.1f}")
    told = ", ".join(row.coordinates) or "nothing"
    scheme = row.name.partition(":")[0]
    return [scheme, told, f"{row.parameters:,}", *shares, f"{100 * row.shuffled.mean:.1f}"]


INK = COLOURS[1]
STRONGEST = 0.85  # how much of the picture the largest weight covers


def draw_over(
    axes: Axes,
    picture: Float[Tensor, "rows columns"],
    shades: tuple[float, float],
    weights: Float[Tensor, "r c"] | None = None,
    largest: float = 1.0,
) -> None:
    """Draws a picture from white to black and, where there are weights, each patch under a veil as thick as its own."""
    rows, columns = picture.shape
    extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    axes.imshow(picture.numpy(), cmap="Greys", vmin=shades[0], vmax=shades[1], interpolation="nearest", extent=extent)
    if weights is not None:
        axes.imshow(veil(weights, largest), interpolation="nearest", extent=extent)
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_linewidth(0.4)


def veil(weights: Float[Tensor, "r c"], largest: float) -> Float[np.ndarray, "r c 4"]:
    """Gives the colour of each patch, clear where its weight is 0."""
    thickness = (weights / largest).clamp(0, 1).numpy() * STRONGEST
    colour = np.broadcast_to(np.array(to_rgb(INK)), (*thickness.shape, 3))
    return np.concatenate([colour, thickness[..., None]], axis=-1)
