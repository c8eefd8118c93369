"""Figures over words: lines, bars, alignment, answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from regard.plot.canvas import (
    GREY,
    MARGIN,
    NAME,
    Box,
    check_words,
    line_height,
    make_sheet,
    text_width,
    title_size,
    widest,
    write,
    write_title,
)
from regard.plot.heatmap import (
    KEY_HEIGHT,
    PAD,
    draw_key,
    draw_matrix,
    name_columns,
    name_rows,
    place_map,
    row_room,
    weight_scale,
)
from regard.plot.style import COLOURS, in_style
from regard.shapes import Float
from regard.terminal import readable, shorten

SPAN = 2.2  # inches between the two columns of words
PITCH = 0.2  # and between words
BETWEEN = 0.4  # and between panels
LANES = 0.07  # inches to either side of a word's middle over which heads are spread, so that none hides another
SWATCH = 0.2  # length of the line that shows a head's colour
FAINTEST = 0.02  # weights below it would be but a haze
THICKEST = 2.5  # points, at weight 1
BELOW = f"thicker and darker: more weight; none drawn below {FAINTEST:.0%}"


@dataclass(frozen=True)
class _Panel:
    """The place of everything in one panel."""

    queries: Sequence[str]
    keys: Sequence[str]
    sides: tuple[str, str]

    @property
    def rooms(self) -> tuple[float, float]:
        """Return the widths of the two columns."""
        columns = zip((self.queries, self.keys), self.sides, strict=True)
        left, right = (max(row_room(words), text_width(side, NAME) + PAD) for words, side in columns)
        return left, right

    @property
    def width(self) -> float:
        """Return the width of the panel."""
        return sum(self.rooms) + SPAN

    def span(self, left: float, top: float) -> Box:
        """Return the place of the lines."""
        return Box(left + self.rooms[0], top, SPAN, PITCH * max(len(self.queries), len(self.keys)))


@in_style
def draw_head_lines(
    weights: Float[np.ndarray, "H Q K"],
    queries: Sequence[str],
    keys: Sequence[str],
    heads: Sequence[str],
    title: str = "Which word attends to which",
    sides: tuple[str, str] = ("query", "key"),
) -> Figure:
    """Draw queries at the left, keys at the right, and between them lines as strong as the weights.

    Colours that anybody can tell apart are few: more heads than these are spread over several panels.
    """
    H, Q, K = weights.shape
    check_words("heads", heads, H, "matrices")
    check_words("queries", queries, Q, "rows")
    check_words("keys", keys, K, "columns")
    groups = np.array_split(np.arange(H), ceil(H / len(COLOURS)))
    panel = _Panel(queries, keys, sides)
    wide, top = title_size(title, BELOW)
    span = panel.span(0.0, top + line_height(NAME))
    names = [_flow([heads[int(h)] for h in group], panel.width) for group in groups]
    bottom = span.bottom + 0.1 + max(len(lines) for lines in names) * line_height(NAME) + MARGIN
    figure, axes = make_sheet(max(wide, 2 * MARGIN + len(groups) * (panel.width + BETWEEN) - BETWEEN), bottom)
    write_title(axes, title, BELOW)
    for at, (group, lines) in enumerate(zip(groups, names, strict=True)):
        left = MARGIN + at * (panel.width + BETWEEN)
        place = panel.span(left, span.top)
        _write_words(axes, panel, place)
        for h, colour, lane in zip(group, COLOURS, np.linspace(-LANES, LANES, len(group) + 2)[1:-1], strict=False):
            _draw_lines(axes, weights[h], replace(place, top=place.top + lane), colour)
        _write_heads(axes, lines, left, span.bottom + 0.1)
    return figure


def _heights(n: int, box: Box) -> Float[np.ndarray, " n"]:
    """Spread words evenly from top to bottom."""
    return box.top + (np.arange(n) + 0.5) * box.height / n


def _write_words(axes: Axes, panel: _Panel, box: Box) -> None:
    columns = ((panel.queries, box.left - PAD, "right"), (panel.keys, box.right + PAD, "left"))
    for side, (words, x, ha) in zip(panel.sides, columns, strict=True):
        write(axes, x, box.top - line_height(NAME) / 2, side, NAME, ha=ha, color=GREY)
        for word, y in zip(words, _heights(len(words), box).tolist(), strict=True):
            write(axes, x, y, readable(word), NAME, ha=ha)


def _draw_lines(axes: Axes, weights: Float[np.ndarray, "Q K"], box: Box, colour: str) -> None:
    """Draw one head, the strongest lines last."""
    left, right = (_heights(n, box) for n in weights.shape)
    order = [(i, j) for i, j in zip(*np.nonzero(weights >= FAINTEST), strict=True)]
    order.sort(key=lambda at: weights[at])
    strengths = [min(float(weights[at]), 1.0) for at in order]
    lines = LineCollection(
        [np.array([(box.left, left[i]), (box.right, right[j])]) for i, j in order],
        colors=[to_rgba(colour, max(strength, 0.08)) for strength in strengths],
        linewidths=[max(THICKEST * strength, 0.4) for strength in strengths],
        capstyle="round",
    )
    axes.add_collection(lines, autolim=False)


def _flow(names: Sequence[str], width: float) -> list[list[str]]:
    """Break the names of heads into lines."""
    lines: list[list[str]] = [[]]
    for name in map(shorten, names):
        if lines[-1] and sum(map(_entry, [*lines[-1], name])) > width:
            lines.append([])
        lines[-1].append(name)
    return lines


def _entry(name: str) -> float:
    return SWATCH + 2 * PAD + text_width(name, NAME) + 0.1


def _write_heads(axes: Axes, lines: Sequence[Sequence[str]], left: float, top: float) -> None:
    """Write the names of heads, each behind a line in its colour."""
    colours = iter(COLOURS)
    for i, line in enumerate(lines):
        x, y = left, top + (i + 0.5) * line_height(NAME)
        for name in line:
            axes.plot([x, x + SWATCH], [y, y], color=next(colours), linewidth=THICKEST)
            write(axes, x + SWATCH + 2 * PAD, y, name, NAME)
            x += _entry(name)


PAGE = 13.0  # what a side does not exceed as long as each word has its place
WIDEST, HIGHEST, SMALLEST = 0.3, 0.26, 0.15  # cells in inches; the smallest has room for a line of text
OTHERS = "#7fb3d5"  # bars that are not the highest of their row
STRIPE = "#f3f3f3"  # behind every second column, to follow it down


@in_style
def draw_word_attention(
    weights: Float[np.ndarray, "T S"],
    src: Sequence[str],
    tgt: Sequence[str],
    title: str = "What each word attended to",
) -> Figure:
    """Draw a row for each target word, with a bar over each source word, and name the word it attended to most."""
    T, S = weights.shape
    check_words("target words", tgt, T, "rows")
    check_words("source words", src, S, "columns")
    full = float(weights.max(initial=0.0)) or 1.0
    below = f"a bar as high as its row: {full:.0%} of the weight; at the right what has most of it"
    wide, top = title_size(title, below)
    box, right = place_map(tgt, src, (_cell(S, WIDEST), _cell(T, HIGHEST)), top, page=inf)
    most = [_most(row, src) for row in weights]
    right = max(right, box.right + 2 * PAD + widest(most, NAME))
    figure, axes = make_sheet(max(wide, right + MARGIN), box.bottom + MARGIN)
    write_title(axes, title, below)
    name_rows(axes, tgt, box)
    name_columns(axes, src, box)
    _draw_bars(axes, weights / full, box)
    for i, text in enumerate(most):
        write(axes, box.right + 2 * PAD, box.top + (i + 0.5) * box.height / T, text, NAME, color=GREY)
    return figure


def _cell(n: int, largest: float) -> float:
    return min(largest, max(SMALLEST, PAGE / n))


def _most(row: Float[np.ndarray, " S"], src: Sequence[str]) -> str:
    """Name the word with the largest weight; nothing where all are masked."""
    at = int(row.argmax())
    return f"{readable(src[at])} {row[at]:.0%}" if row[at] > 0 else ""


def _draw_bars(axes: Axes, heights: Float[np.ndarray, "T S"], box: Box) -> None:
    """Draw bars that stand on the lower edge of their row, the highest of each row darker."""
    T, S = heights.shape
    width, height = box.width / S, box.height / T
    for j in range(1, S, 2):
        axes.add_patch(Rectangle((box.left + j * width, box.top), width, box.height, color=STRIPE, linewidth=0))
    for i, row in enumerate(heights):
        floor = box.top + (i + 1) * height
        axes.plot([box.left, box.right], [floor, floor], color="#cccccc", linewidth=0.5)
        bars = [
            Rectangle((box.left + (j + 0.1) * width, floor), 0.8 * width, -0.9 * height * share)
            for j, share in enumerate(row.tolist())
        ]
        colours = [COLOURS[0] if share == row.max() else OTHERS for share in row.tolist()]
        axes.add_collection(PatchCollection(bars, facecolors=colours, linewidths=0), autolim=False)


Link = tuple[int, int]  # a source word and a target word, counted from 0 as in Pharaoh's `i-j`

CELL = 0.3, 0.3
ALIGNMENT_BELOW = "columns: source words; rows: target words"
MARKS_HEIGHT = 0.35  # inches for what the marks mean
SURE: Any = {"edgecolor": COLOURS[1], "linewidth": 1.6, "linestyle": "-"}
POSSIBLE: Any = {"edgecolor": COLOURS[1], "linewidth": 1.2, "linestyle": (0, (2, 1.2))}
CHOSEN: Any = {"marker": "o", "linestyle": "", "color": "black", "markeredgecolor": "white", "markeredgewidth": 0.8}


@in_style
def draw_alignment(
    weights: Float[np.ndarray, "T S"],
    src: Sequence[str],
    tgt: Sequence[str],
    links: Iterable[Link],
    sure: Iterable[Link] = (),
    possible: Iterable[Link] = (),
    title: str = "Word alignment",
) -> Figure:
    """Draw weights as shades, chosen links as dots, gold ones as frames: whole where sure, broken where possible."""
    T, S = weights.shape
    check_words("target words", tgt, T, "rows")
    check_words("source words", src, S, "columns")
    chosen, sure, possible = ([_checked(link, S, T) for link in each] for each in (links, sure, possible))
    wide, top = title_size(title, ALIGNMENT_BELOW)
    box, right = place_map(tgt, src, CELL, top)
    bottom = box.bottom + 0.1 + MARKS_HEIGHT
    figure, axes = make_sheet(max(wide, right + MARGIN, 3.4), bottom + KEY_HEIGHT)
    write_title(axes, title, ALIGNMENT_BELOW)
    shade = weight_scale(weights)
    draw_matrix(axes, weights, box, shade)
    name_rows(axes, tgt, box)
    name_columns(axes, src, box)
    _frame(axes, [link for link in possible if link not in sure], box, (S, T), POSSIBLE)
    _frame(axes, sure, box, (S, T), SURE)
    _dot(axes, chosen, box, (S, T))
    _explain(axes, box.bottom + 0.1, bool(sure), bool(possible))
    draw_key(figure, shade, Box(MARGIN, bottom, 1.5, KEY_HEIGHT), "weight")
    return figure


def _checked(link: Link, S: int, T: int) -> Link:
    i, j = link
    if not (0 <= i < S and 0 <= j < T):
        raise ValueError(f"a link must join one of {S} source words to one of {T} target words, got {i}-{j}")
    return link


def _frame(axes: Axes, links: Sequence[Link], box: Box, size: tuple[int, int], style: dict[str, Any]) -> None:
    width, height = box.width / size[0], box.height / size[1]
    for i, j in links:
        corner = box.left + (i + 0.1) * width, box.top + (j + 0.1) * height
        axes.add_patch(Rectangle(corner, 0.8 * width, 0.8 * height, fill=False, **style))


def _dot(axes: Axes, links: Sequence[Link], box: Box, size: tuple[int, int]) -> None:
    width, height = box.width / size[0], box.height / size[1]
    x, y = [box.left + (i + 0.5) * width for i, _ in links], [box.top + (j + 0.5) * height for _, j in links]
    axes.plot(x, y, markersize=24 * min(width, height), label="chosen", **CHOSEN)


def _explain(axes: Axes, top: float, sure: bool, possible: bool) -> None:
    """Say below the matrix what the marks mean."""
    marks: list[Any] = [Line2D([], [], label="chosen", **CHOSEN)]
    frames = [("gold, sure", SURE)] * sure + [("gold, possible", POSSIBLE)] * possible
    marks += [Rectangle((0, 0), 1, 1, fill=False, label=name, **style) for name, style in frames]
    axes.legend(
        handles=marks,
        ncols=3,
        loc="upper left",
        bbox_to_anchor=(MARGIN, top),
        bbox_transform=axes.transData,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.2,
        fontsize=NAME,
    )


ANSWER_CELL = 0.3, 0.26
GAP = 0.15  # inches between a heat map and the next heading
ANSWER_BELOW = "rows: words of the question; columns: words of the context, the answer framed"
HEADINGS = ("attention from question to context", "attention from context to question")


@in_style
def draw_answer(
    to_context: Float[np.ndarray, "q c"],
    to_question: Float[np.ndarray, "c q"],
    question: Sequence[str],
    context: Sequence[str],
    answer: tuple[int, int],
    title: str = "Question and answer",
) -> Figure:
    """Draw two heat maps over the same words, one for each direction, the answer's columns framed."""
    Q, C = to_context.shape
    check_words("question words", question, Q, "rows")
    check_words("words of the context", context, C, "columns")
    if not 0 <= answer[0] < answer[1] <= C:
        raise ValueError(f"the answer must lie in words 0 … {C}, got {answer[0]} … {answer[1]}")
    line = line_height(NAME) + 0.05
    wide, top = title_size(title, ANSWER_BELOW)
    first, right = place_map(question, context, ANSWER_CELL, top + line)
    second = Box(first.left, first.bottom + GAP + line, first.width, first.height)
    figure, axes = make_sheet(max(wide, right + MARGIN, 3.4), second.bottom + GAP + KEY_HEIGHT)
    write_title(axes, title, ANSWER_BELOW)
    write(axes, MARGIN, top + line / 2, HEADINGS[0], NAME)
    write(axes, MARGIN, second.top - line / 2, HEADINGS[1], NAME)
    name_columns(axes, context, first)
    shade = weight_scale(to_context, to_question)
    for values, box in ((to_context, first), (to_question.T, second)):
        draw_matrix(axes, values, box, shade)
        name_rows(axes, question, box)
        _frame_columns(axes, answer, C, box)
    draw_key(figure, shade, Box(MARGIN, second.bottom + GAP, 1.5, KEY_HEIGHT), "attention weight")
    return figure


def _frame_columns(axes: Axes, columns: tuple[int, int], n: int, box: Box) -> None:
    width = box.width / n
    corner = box.left + columns[0] * width, box.top
    axes.add_patch(Rectangle(corner, (columns[1] - columns[0]) * width, box.height, fill=False, **SURE))
