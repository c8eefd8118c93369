"""Random walks that spell pieces: states, options with chances, and many walkers at once."""

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.text.ranges import Ints, ranges

END, OPEN = -1, -2  # where an option leads if not to a state: nowhere, or nobody has looked yet
# Chances are multiples of it and draws too, so that a state's number plus a chance is exact below 2 ** 29 states.
GRAIN = 2.0**-24


class Option(NamedTuple):
    """One way on from a state: how likely, to which state, and the ids that are spelled on the way."""

    chance: float
    leads_to: int
    ids: Sequence[int]


class Walks:
    """States, each with its options side by side in flat columns.

    An option's key is its state's number plus the chances of the options up to it, so one binary search finds what a
    walker in any state takes.
    """

    def __init__(self) -> None:
        self.keys, self.leads_to = array("d"), array("q")
        self.starts, self.lengths, self.ids = array("q"), array("q"), array("q")
        self.n_states = 0

    def add(self, options: Sequence[Option]) -> int:
        """Appends a state; its number is given back."""
        upto = 0.0
        for chance, leads_to, ids in options:
            upto += chance
            self.keys.append(self.n_states + round(upto / GRAIN) * GRAIN)
            self.leads_to.append(leads_to)
            self.starts.append(len(self.ids))
            self.lengths.append(len(ids))
            self.ids.extend(ids)
        self.keys[-1] = self.n_states + 1.0
        self.n_states += 1
        return self.n_states - 1

    def add_decision(self, chance: float) -> int:
        """Appends a state of two open options, the first with the given chance."""
        n = self.n_states
        self.keys.extend((n + round(chance / GRAIN) * GRAIN, n + 1.0))
        self.leads_to.extend((OPEN, OPEN))
        self.starts.extend((0, 0))
        self.lengths.extend((0, 0))
        self.n_states += 1
        return n

    def lead(self, option: int, leads_to: int, ids: Sequence[int]) -> None:
        """Says where an open option leads and what it spells."""
        self.leads_to[option], self.starts[option], self.lengths[option] = leads_to, len(self.ids), len(ids)
        if ids:
            self.ids.extend(ids)

    def walk(
        self, states: Ints, chance: np.random.Generator, look: Callable[[int], None]
    ) -> tuple[NDArray[np.int64], Ints]:
        """Sends a walker from each state to an end; gives all the ids they spell, and how many each does.

        `look` is told of open options that are taken, and must `lead` each somewhere.
        """
        walkers, taken = np.arange(len(states)), []
        n_steps = np.zeros(len(states), dtype=np.int64)
        while len(walkers):
            drawn = chance.random(len(walkers), dtype=np.float32)  # 24 bits
            options = np.searchsorted(_view(self.keys), states + drawn, side="right")
            for option in np.unique(options[_view(self.leads_to)[options] == OPEN]).tolist():
                look(option)
            taken.append((walkers, options))
            n_steps[walkers] += 1
            states = _view(self.leads_to)[options]
            going = states != END
            walkers, states = walkers[going], states[going]
        return self._spelled(taken, n_steps)

    def _spelled(self, taken: list[tuple[Ints, Ints]], n_steps: Ints) -> tuple[NDArray[np.int64], Ints]:
        before = np.cumsum(n_steps) - n_steps
        options = np.empty(int(n_steps.sum()), dtype=np.int64)
        for step, (walkers, some) in enumerate(taken):
            options[before[walkers] + step] = some
        lengths = _view(self.lengths)[options]
        ids = _view(self.ids)[ranges(_view(self.starts)[options], lengths)]
        upto = np.concatenate([[0], np.cumsum(lengths)])
        return ids, upto[before + n_steps] - upto[before]


def _view(column: array) -> NDArray:
    """Shows a column as it is; it cannot grow while the view is kept."""
    return np.frombuffer(column, dtype=column.typecode)
