"""Sentences that come one after another: each begins in a free slot while others are being written."""

from bisect import bisect_left

import torch

from regard.batch import Ids
from regard.config import DecodeSettings
from regard.decode import beam, greedy
from regard.decode.conveyor import LEAST_SOURCE, Conveyor, most_slots, room, target_room, turn
from regard.decode.hypothesis import Hypothesis
from regard.model.slotted import SlottedTransformer

LINES = 8  # that have slots at the same time: each of many slots takes a gigabyte or so of a GPU


class Line:
    """Sentences of up to S tokens and of the same settings: those that wait, and those in slots.

    A sentence that comes while there is no other has a conveyor of one slot, whose steps are the quickest.
    """

    def __init__(self, model: SlottedTransformer, S: int, settings: DecodeSettings):
        self.model, self.S, self.settings = model, S, settings
        self.waiting: list[int] = []  # in the order in which they came
        self.ids: dict[int, Ids] = {}  # of all that are not over
        self.conveyors: dict[int, Conveyor] = {}  # by the number of their slots

    @property
    def n_begun(self) -> int:
        """Counts the sentences in slots."""
        return len(self.ids) - len(self.waiting)

    def add(self, number: int, ids: Ids) -> None:
        """Lets a sentence wait; its number is above those of all before."""
        self.waiting.append(number)
        self.ids[number] = ids

    @torch.inference_mode()
    def give_up(self, number: int) -> None:
        """Forgets a sentence, wherever it is."""
        if number in self.waiting:
            self.waiting.remove(number)
        for conveyor in self.conveyors.values():
            conveyor.give_up(number)
        del self.ids[number]

    @torch.inference_mode()
    def turn(self, before: int) -> list[tuple[int, list[Hypothesis]]]:
        """Lets those that came before a number begin where there is room, takes some steps, and gives what is over."""
        line, found = self.waiting[: bisect_left(self.waiting, before)], []
        n_waiting, chosen = len(line), self._chosen(len(line))
        for conveyor in self.conveyors.values():
            mine = line if conveyor is chosen else []
            if mine or conveyor.n_free < len(conveyor.left):
                found += turn(conveyor, mine, self.ids)
        del self.waiting[: n_waiting - len(line)]
        for number, _ in found:
            del self.ids[number]
        return found

    def _chosen(self, n_waiting: int) -> Conveyor | None:
        """Gives the conveyor on which the next sentences begin."""
        if not n_waiting:
            return None
        B = 1 if n_waiting == 1 and not self.n_begun else most_slots(self.S, self.settings)
        if B not in self.conveyors:
            T = target_room(self.S, self.settings)
            self.conveyors[B] = Conveyor(self.model, B, self.S, T, self.settings)
        return self.conveyors[B]


class Hall:
    """The lines of one model. It is used by one thread; what is found is what `search_all` finds.

    A line that wants slots when no more may have some is not passed by those who came later, so that slots become free.
    """

    def __init__(self, model: SlottedTransformer):
        self.model = model.eval()
        self._lines: dict[tuple[int, DecodeSettings], Line] = {}  # the last to be asked for stands last
        self._where: dict[int, Line] = {}  # each sentence that is not over
        self._n_added = 0

    def __len__(self) -> int:
        return len(self._where)

    @property
    def n_begun(self) -> int:
        """Counts the sentences in slots."""
        return sum(line.n_begun for line in self._lines.values())

    def add(self, ids: Ids, settings: DecodeSettings) -> int:
        """Lets a sentence wait, and gives the number by which it is known."""
        (greedy if settings.method == "greedy" else beam).check(settings)
        S, number = room(len(ids) + 1, LEAST_SOURCE), self._n_added
        line = self._lines.pop((S, settings), None) or Line(self.model, S, settings)
        self._lines[S, settings] = self._where[number] = line
        line.add(number, ids)
        self._n_added += 1
        return number

    def give_up(self, number: int) -> None:
        """Forgets a sentence that is not over."""
        self._where.pop(number).give_up(number)

    def turn(self) -> list[tuple[int, list[Hypothesis] | Exception]]:
        """Takes a turn of every line, and gives what is over; where a line fails, its sentences have its error."""
        lines, shut = self._admitted()
        self._forget_idle(LINES - len(lines))
        before = shut[0].waiting[0] if shut else self._n_added
        over: list[tuple[int, list[Hypothesis] | Exception]] = []
        for line in lines:
            try:
                over += line.turn(before)
            except Exception as error:
                over += [(number, error) for number in line.ids]
                del self._lines[line.S, line.settings]
                self._forget_idle(0)  # memory may be what was missing
        for number, _ in over:
            del self._where[number]
        return over

    def _admitted(self) -> tuple[list[Line], list[Line]]:
        """Gives the lines that may have slots, and those that may not yet: who has some keeps them, then the oldest."""
        busy = [line for line in self._lines.values() if line.ids]
        busy.sort(key=lambda line: (line.n_begun == 0, next(iter(line.ids))))
        for line in busy[LINES:]:
            line.conveyors.clear()
        return busy[:LINES], busy[LINES:]

    def _forget_idle(self, n_kept: int) -> None:
        """Forgets lines without sentences, but for those that were asked for last."""
        idle = [key for key, line in self._lines.items() if not line.ids]
        for key in idle[: max(0, len(idle) - n_kept)]:
            del self._lines[key]
