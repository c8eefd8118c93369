"""A beam search as a tree: what was kept, what ended, what was dropped, and the best of all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.plot.beam_layout import Parents, break_steps, lay_band, path_to, steps
from regard.plot.figure import COLOURS, in_style
from regard.plot.measure import line_height, text_width
from regard.plot.sheet import GREY, MARGIN, NAME, SMALL, make_sheet, title_size, write, write_strong, write_title
from regard.plot.words import readable

Fate = Literal["kept", "ended", "dropped"]

ROW = 0.2  # inches
BEND = 0.4  # inches between columns, in which branches bend
PAD = 0.04
PAGE = 14.0  # width at which the steps are broken into a further band
NUMBER = 6.5  # size in points
ENDED = "#cfe8de"  # behind what ended
BELOW = "beside a token its probability after all before it; beside an end also the log-probability of the whole"
INKS = {"best": COLOURS[0], "kept": "black", "ended": "black", "dropped": "#767676"}


@dataclass(frozen=True, eq=False)
class BeamTree:
    """All tokens that a search looked at, parents before their children."""

    tokens: Sequence[str]
    parents: Parents
    totals: Float[np.ndarray, " M"]  # log-probability of everything up to this token
    fates: Sequence[str]  # each one of `Fate`
    best: int  # the node in which the best hypothesis ends


@dataclass(frozen=True)
class _Node:
    """A token in its place, in inches."""

    token: str
    number: str
    look: str
    ended: bool
    left: float
    column: float  # where its column ends, and branches begin to bend
    y: float

    @property
    def middle(self) -> float:
        """Gives where the number begins."""
        return self.left + text_width(self.token, NAME) + PAD

    @property
    def right(self) -> float:
        """Gives where the number ends."""
        return self.middle + text_width(self.number, NUMBER)


@in_style
def draw_beam_tree(tree: BeamTree, title: str = "What the search looked at") -> Figure:
    """Draws the steps from left to right, the best path as a straight bold line.

    A long search is broken into bands as text is into lines; the last step of one band begins the next.
    """
    _check(tree)
    wide, top = title_size(title, BELOW)
    bands: list[dict[int, _Node]] = []
    for band in _place(tree):
        bands.append({at: replace(node, y=top + node.y) for at, node in band.items()})
        top = max(node.y for node in bands[-1].values()) + 1.5 * ROW
    right = max(node.column for band in bands for node in band.values()) + MARGIN
    figure, axes = make_sheet(max(wide, right), top + line_height(NAME) + MARGIN)
    write_title(axes, title, BELOW)
    at_step = steps(tree.parents)
    for band in bands:
        _name_steps(axes, band, at_step)
        _draw_branches(axes, tree.parents, band)
        for node in band.values():
            _draw_node(axes, node)
    _explain(axes, top + line_height(NAME) / 2)
    return figure


def _check(tree: BeamTree) -> None:
    n = len(tree.totals)
    for what in ("tokens", "parents", "fates"):
        if len(getattr(tree, what)) != n:
            raise ValueError(f"{what} must be as many as the totals, got {len(getattr(tree, what))} and {n}")
    if not 0 <= tree.best < n:
        raise ValueError(f"best must be one of the {n} nodes, got {tree.best}")
    for fate in tree.fates:
        if fate not in get_args(Fate):
            raise ValueError(f"a fate must be one of {', '.join(get_args(Fate))}, got {fate!r}")


def _place(tree: BeamTree) -> list[dict[int, _Node]]:
    """Gives the nodes of each band their places: a column as wide as its widest label, a row from the layout."""
    best, at_step = path_to(tree.best, tree.parents), steps(tree.parents)
    nodes = [_label(tree, at, at in best) for at in range(len(at_step))]
    widths = [0.0] * (max(at_step) + 1)
    for step, node in zip(at_step, nodes, strict=True):
        widths[step] = max(widths[step], node.right + 3 * PAD + BEND)
    places = []
    for band in break_steps(widths, PAGE):
        lefts = MARGIN + BEND + np.cumsum([0.0, *widths[band.start : band.stop]])
        found = lay_band(tree.parents, best, band)
        places.append({at: _put(nodes[at], row, at_step[at] - band.start, lefts) for at, row in found.items()})
    return places


def _label(tree: BeamTree, at: int, best: bool) -> _Node:
    """Gives a node what it says and how it looks, but no place yet."""
    fate = tree.fates[at]
    return _Node(readable(tree.tokens[at]), _number(tree, at), "best" if best else fate, fate == "ended", 0.0, 0.0, 0.0)


def _put(node: _Node, row: int, column: int, lefts: Float[np.ndarray, " C"]) -> _Node:
    left, end = lefts[column], lefts[column + 1] - BEND
    return replace(node, left=float(left), column=float(end), y=2 * line_height(SMALL) + ROW * (row + 0.5))


def _name_steps(axes: Axes, band: dict[int, _Node], at_step: Sequence[int]) -> None:
    y = min(node.y for node in band.values()) - ROW / 2 - line_height(SMALL)
    for step, left in {at_step[at]: node.left for at, node in band.items()}.items():
        write(axes, left, y, f"step {step + 1}", SMALL, color=GREY)


def _number(tree: BeamTree, at: int) -> str:
    """Writes a token's own probability, and at an end the log-probability of the whole."""
    parent = tree.parents[at]
    chance = exp(tree.totals[at] - (0.0 if parent is None else tree.totals[parent]))
    whole = f", log p {tree.totals[at]:.2f}".replace("-", "−") if tree.fates[at] == "ended" else ""
    return (f"{chance:.0%}" if chance >= 0.005 else "<1%") + whole


def _draw_branches(axes: Axes, parents: Parents, band: dict[int, _Node]) -> None:
    """Draws the branches of a band, the best path over the others."""
    level = next((node.y for node in band.values() if node.look == "best"), 0.0)
    above: dict[int | None, _Node] = {None: _Node("", "", "best", False, MARGIN, MARGIN, level), **band}
    if any(parents[at] is None for at in band):
        axes.plot(MARGIN, level, "o", color=COLOURS[0], markersize=4)
    pairs = [(above.get(parents[at]), node) for at, node in band.items()]
    for look, width in (("dropped", 0.5), ("ended", 0.9), ("kept", 0.9), ("best", 2.2)):
        lines = [_branch(old, new) for old, new in pairs if old is not None and new.look == look]
        axes.add_collection(LineCollection(lines, colors=INKS[look], linewidths=width), autolim=False)


def _branch(old: _Node, new: _Node) -> Float[np.ndarray, "P 2"]:
    """Goes straight to the end of the column, so that no other label is crossed, and then bends."""
    turn = np.linspace(0, 1, 17)
    x = old.column + (new.left - PAD - old.column) * turn
    y = old.y + (new.y - old.y) * (3 - 2 * turn) * turn**2
    begin = (old.right + PAD if old.token else old.left, old.y)
    return np.concatenate([[begin], np.stack([x, y], axis=1)])


def _draw_node(axes: Axes, node: _Node) -> None:
    if node.ended:
        corner = node.left - PAD, node.y - 0.45 * ROW
        axes.add_patch(Rectangle(corner, node.right - node.left + 2 * PAD, 0.9 * ROW, color=ENDED, linewidth=0))
    pen = write_strong if node.look == "best" else write
    pen(axes, node.left, node.y, node.token, NAME, va="center_baseline", color=INKS[node.look])
    write(axes, node.middle, node.y, node.number, NUMBER, va="center_baseline", color=INKS["dropped"])


def _explain(axes: Axes, y: float) -> None:
    """Says at the bottom what the looks mean."""
    x = MARGIN
    for look in INKS:
        _draw_node(axes, _Node(look, "", look, look == "ended", x, x, y))
        x += text_width(look, NAME) + 0.3
