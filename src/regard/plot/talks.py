"""The study of dialogues as a figure: accuracy, then the words that were looked at."""

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.plot.overlay import INK, STRONGEST
from regard.plot.task_bars import draw_bars, who_looks
from regard.study.talks import PEOPLE, WORDS
from regard.study.task_study import Seen, TaskStudy

COLUMNS = 36  # letters in the widest line, with the name of who says it


@in_style
def draw_talks(study: TaskStudy) -> Figure:
    """Draws the bars, then each test dialogue in the order of its turns, once for each head of the last layer."""
    H = study.seen[0].weights.shape[1]
    heights = [0.6 + 0.45 * len(study.rows), *[2.0] * len(study.seen)]
    figure = Drawing(figsize=(3.3 * H, sum(heights)))
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    draw_bars(parts[0].subplots(), study)
    for part, seen in zip(parts[1:], study.seen, strict=True):
        for head, axes in enumerate(part.subplots(1, H, squeeze=False)[0]):
            draw_words(axes, seen, head)
            axes.set_title(f"last layer, head {head}", fontsize=8)
        part.suptitle(f"{who_looks(study)}; answer {seen.right}, the model says {seen.said}", fontsize=9)
    return figure


def draw_words(axes: Axes, seen: Seen, head: int) -> None:
    """Writes the turns one below another, each word on a ground as dark as its weight."""
    weights = seen.weights[-1, head]
    axes.set(xlim=(0, COLUMNS), ylim=(len(PEOPLE) * 2 + 0.7, -0.7))
    axes.axis("off")
    ends: dict[int, int] = {}
    for word, (_, turn, speaker), weight in zip(seen.tokens.tolist(), seen.places.tolist(), weights, strict=True):
        if turn not in ends:
            axes.text(0, turn, PEOPLE[speaker], fontsize=7, family="monospace", va="center", color="grey")
        at = ends.get(turn, 5)
        ground = to_rgba(INK, STRONGEST * float(weight / weights.amax()))
        box = {"facecolor": ground, "edgecolor": "none", "pad": 0.8}
        axes.text(at, turn, WORDS[word], fontsize=7, family="monospace", va="center", bbox=box)
        ends[turn] = at + len(WORDS[word]) + 1
