"""How often each way of telling places was right, as bars."""

from matplotlib.axes import Axes

from regard.plot.figure import COLOURS
from regard.study.task_study import Row, TaskStudy


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
