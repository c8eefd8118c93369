"""The search tree."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Literal, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.plot.canvas import (
    GREY,
    MARGIN,
    NAME,
    SMALL,
    line_height,
    make_sheet,
    text_width,
    title_size,
    write,
    write_strong,
    write_title,
)
from regard.plot.style import COLOURS, in_style
from regard.shapes import Float
from regard.terminal import readable

Parents = Sequence[int | None]  # of each node the one it continues, which stands before it; None at the first step


@dataclass(frozen=True)
class _Outline:
    """The highest and the lowest row that a branch takes at each of its steps, counted from the row it begins in."""

    tops: list[int]
    bottoms: list[int]


def steps(parents: Parents) -> list[int]:
    """Return the step of each node, the first being 0."""
    found: list[int] = []
    for node, parent in enumerate(parents):
        if parent is not None and not 0 <= parent < node:
            raise ValueError(f"a parent must stand before its children, got {parent} as the parent of {node}")
        found.append(0 if parent is None else found[parent] + 1)
    return found


def path_to(node: int, parents: Parents) -> list[int]:
    """Return the nodes from the first step to this one."""
    path = [node]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    return path[::-1]


def rows(parents: Parents, straight: Sequence[int]) -> list[int]:
    """Return each node a row: one path is straight, other branches are along their longest way, all keep their order.

    A branch moves down until it is free of its upper neighbours at each step that both have, and no further: what ends
    early takes no room later. Costs the number of nodes times the number of steps.
    """
    n = len(parents)
    children: list[list[int]] = [[] for _ in range(n + 1)]  # the last one's are those of the first step
    for node, parent in enumerate(parents):
        children[n if parent is None else parent].append(node)
    outlines: dict[int, _Outline] = {}
    shifts = [0] * n  # of each node against its parent
    for node in (*range(n - 1, -1, -1), n):
        outlines[node] = _hang(children[node], outlines, shifts, set(straight))
    found: list[int] = []
    for node, parent in enumerate(parents):
        found.append(shifts[node] + (0 if parent is None else found[parent]))
    return [row - min(found) for row in found]


def break_steps(widths: Sequence[float], page: float) -> list[range]:
    """Break steps into bands where a page is full; each but the first begins with the last step of the one before."""
    starts, used = [0], 0.0
    for step, width in enumerate(widths):
        used += width
        if used > page and step > starts[-1] + 1:
            starts.append(step - 1)
            used = widths[step - 1] + width
    return [range(start, end + 1) for start, end in zip(starts, [*starts[1:], len(widths) - 1], strict=True)]


def lay_band(parents: Parents, straight: Sequence[int], band: range) -> dict[int, int]:
    """Return a row to each node of a band, which takes no more rows than its own nodes need.

    Of the step with which it begins, if that is repeated, only those are in it that go on.
    """
    at_step, order, going_on = steps(parents), rows(parents, straight), set(parents)
    whole = range(band.start + (band.start > 0), band.stop)  # without the step that is repeated
    inside = [at for at, step in enumerate(at_step) if step in whole or (step in band and at in going_on)]
    inside.sort(key=lambda at: (at_step[at], order[at]))
    number: dict[int | None, int] = {at: place for place, at in enumerate(inside)}
    found = rows([number.get(parents[at]) for at in inside], [number[at] for at in straight if at in number])
    return dict(zip(inside, found, strict=True))


def _hang(children: list[int], outlines: dict[int, _Outline], shifts: list[int], straight: set[int]) -> _Outline:
    """Hang branches under each other, return the shift of each, and the outline of all with their parent."""
    tops: list[int] = []
    bottoms: list[int] = []
    for child in children:
        branch = outlines[child]
        pairs = zip(bottoms, branch.tops, strict=False)
        shift = shifts[child] = max((bottom - top + 1 for bottom, top in pairs), default=0)
        deeper = len(tops)
        tops += [top + shift for top in branch.tops[deeper:]]
        bottoms = [bottom + shift for bottom in branch.bottoms] + bottoms[len(branch.bottoms) :]
    level = shifts[_main(children, outlines, straight)] if children else 0
    for child in children:
        shifts[child] -= level
    return _Outline([0, *(top - level for top in tops)], [0, *(bottom - level for bottom in bottoms)])


def _main(children: list[int], outlines: dict[int, _Outline], straight: set[int]) -> int:
    """Choose the child that stands in its parent's row."""
    return max(children, key=lambda child: (child in straight, len(outlines[child].tops)))


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
    """All tokens that a search considered, parents before their children."""

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
        """Return where the number begins."""
        return self.left + text_width(self.token, NAME) + PAD

    @property
    def right(self) -> float:
        """Return where the number ends."""
        return self.middle + text_width(self.number, NUMBER)


@in_style
def draw_beam_tree(tree: BeamTree, title: str = "What the search considered") -> Figure:
    """Draw the steps from left to right, the best path as a straight bold line.

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
    """Return the nodes of each band their places: a column as wide as its widest label, a row from the layout."""
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
    """Return a node what it says and how it looks, but no place yet."""
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
    """Write a token's own probability, and at an end the log-probability of the whole."""
    parent = tree.parents[at]
    chance = exp(tree.totals[at] - (0.0 if parent is None else tree.totals[parent]))
    whole = f", log p {tree.totals[at]:.2f}".replace("-", "−") if tree.fates[at] == "ended" else ""
    return (f"{chance:.0%}" if chance >= 0.005 else "<1%") + whole


def _draw_branches(axes: Axes, parents: Parents, band: dict[int, _Node]) -> None:
    """Draw the branches of a band, the best path over the others."""
    level = next((node.y for node in band.values() if node.look == "best"), 0.0)
    above: dict[int | None, _Node] = {None: _Node("", "", "best", False, MARGIN, MARGIN, level), **band}
    if any(parents[at] is None for at in band):
        axes.plot(MARGIN, level, "o", color=COLOURS[0], markersize=4)
    pairs = [(above.get(parents[at]), node) for at, node in band.items()]
    for look, width in (("dropped", 0.5), ("ended", 0.9), ("kept", 0.9), ("best", 2.2)):
        lines = [_branch(old, new) for old, new in pairs if old is not None and new.look == look]
        axes.add_collection(LineCollection(lines, colors=INKS[look], linewidths=width), autolim=False)


def _branch(old: _Node, new: _Node) -> Float[np.ndarray, "P 2"]:
    """Go straight to the end of the column, so that no other label is crossed, and then bend."""
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
    """Say at the bottom what the looks mean."""
    x = MARGIN
    for look in INKS:
        _draw_node(axes, _Node(look, "", look, look == "ended", x, x, y))
        x += text_width(look, NAME) + 0.3
