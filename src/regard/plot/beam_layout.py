"""Rows for the nodes of a tree, so that nothing collides and no two branches cross."""

from collections.abc import Sequence
from dataclasses import dataclass

Parents = Sequence[int | None]  # of each node the one it continues, which stands before it; None at the first step


@dataclass(frozen=True)
class _Outline:
    """The highest and the lowest row that a branch takes at each of its steps, counted from the row it begins in."""

    tops: list[int]
    bottoms: list[int]


def steps(parents: Parents) -> list[int]:
    """Gives the step of each node, the first being 0."""
    found: list[int] = []
    for node, parent in enumerate(parents):
        if parent is not None and not 0 <= parent < node:
            raise ValueError(f"a parent must stand before its children, got {parent} as the parent of {node}")
        found.append(0 if parent is None else found[parent] + 1)
    return found


def path_to(node: int, parents: Parents) -> list[int]:
    """Gives the nodes from the first step to this one."""
    path = [node]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    return path[::-1]


def rows(parents: Parents, straight: Sequence[int]) -> list[int]:
    """Gives each node a row: one path is straight, other branches are along their longest way, all keep their order.

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
    """Breaks steps into bands where a page is full; each but the first begins with the last step of the one before."""
    starts, used = [0], 0.0
    for step, width in enumerate(widths):
        used += width
        if used > page and step > starts[-1] + 1:
            starts.append(step - 1)
            used = widths[step - 1] + width
    return [range(start, end + 1) for start, end in zip(starts, [*starts[1:], len(widths) - 1], strict=True)]


def lay_band(parents: Parents, straight: Sequence[int], band: range) -> dict[int, int]:
    """Gives a row to each node of a band, which takes no more rows than its own nodes need.

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
    """Hangs branches under each other, gives the shift of each, and the outline of all with their parent."""
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
    """Chooses the child that stands in its parent's row."""
    return max(children, key=lambda child: (child in straight, len(outlines[child].tops)))
