"""Links of two directions become those of one alignment."""

from collections.abc import Callable, Set

from regard.score.alignment import Link

Links = Set[Link]
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def intersection(forward: Links, backward: Links) -> set[Link]:
    """Keeps what both say: few links, nearly all of them right."""
    return set(forward) & set(backward)


def union(forward: Links, backward: Links) -> set[Link]:
    """Takes what either says: many links, few are missed."""
    return set(forward) | set(backward)


def grow_diag(forward: Links, backward: Links) -> set[Link]:
    """Begins with the intersection, and takes neighbours from the union that give a word its first link.

    Koehn, Och and Marcu 2003. Grows in passes over the links in order until none adds anything.
    """
    links, either = intersection(forward, backward), union(forward, backward)
    sources, targets = {i for i, _ in links}, {j for _, j in links}
    n_links = -1
    while n_links < len(links):
        n_links = len(links)
        for near in [(i + down, j + right) for i, j in sorted(links) for down, right in NEIGHBOURS]:
            if near in either and (near[0] not in sources or near[1] not in targets):
                links.add(near)
                sources.add(near[0])
                targets.add(near[1])
    return links


def grow_diag_final_and(forward: Links, backward: Links) -> set[Link]:
    """Grows, and takes at last the links of either direction between two words that both have none."""
    links = grow_diag(forward, backward)
    sources, targets = {i for i, _ in links}, {j for _, j in links}
    for side in (forward, backward):
        for i, j in sorted(side):
            if i not in sources and j not in targets:
                links.add((i, j))
                sources.add(i)
                targets.add(j)
    return links


SYMMETRISE: dict[str, Callable[[Links, Links], set[Link]]] = {
    "intersection": intersection,
    "union": union,
    "grow-diag": grow_diag,
    "grow-diag-final-and": grow_diag_final_and,
}
