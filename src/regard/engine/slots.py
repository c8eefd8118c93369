"""Continuous batching: slot pool and scheduler."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Source, make_source, padded_source
from regard.config import DecodeSettings
from regard.engine.beam_state import Beams, best_hypotheses, made_hypotheses
from regard.engine.cuda import SlottedTransformer
from regard.padding import EOS, Ids
from regard.search import beam
from regard.search.hypothesis import Hypothesis, make_prefix, max_lengths
from regard.search.sampling import check_greedy

CHUNK = 4  # steps between two looks at what is over
LEAST_SOURCE, LEAST_TARGET = 32, 64  # tokens for which there is always room
REFILL = 8  # sentences begin when this share of the slots is free: reading few at a time costs as much as many
OFTEN = 12  # times that a number of sources is read before a graph is made for it
KEPT = 3  # conveyors of different sizes that a model keeps
FREE = -1  # stands in a slot for no sentence


class Reader:
    """Reads sources of up to S tokens: on a GPU by captured graphs, for a few numbers of sentences up to B.

    A graph is made for a number that has come often enough, since making it takes as long as reading a dozen times.
    """

    def __init__(self, model: SlottedTransformer, B: int, S: int):
        self.model, self.S = model, S
        self.sizes = [B >> halvings for halvings in (3, 2, 1, 0) if B >> halvings]
        self.asked = dict.fromkeys(self.sizes, 0)
        self.graphs: dict[int, SourceGraph] = {}

    def __call__(self, src: Source) -> Float[Tensor, "M S L 2 D"]:
        size = next(size for size in self.sizes if size >= len(src.lengths))
        self.asked[size] += 1
        if not self.model.words.is_cuda or self.asked[size] <= OFTEN:
            return self.model.read(src.to(self.model.words.device))
        if size not in self.graphs:
            self.graphs[size] = SourceGraph(self.model, size, self.S)
        return self.graphs[size](src)


class SourceGraph:
    """Reads B sources, or fewer, by one captured graph."""

    def __init__(self, model: SlottedTransformer, B: int, S: int):
        device = model.words.device
        self.ids, self.lengths = torch.full((B, S), EOS, device=device), torch.ones(B, dtype=torch.long, device=device)

        def read() -> Tensor:
            return model.read(padded_source(self.ids, self.lengths, full=False))

        self.graph, self.across = captured(read)

    def __call__(self, src: Source) -> Float[Tensor, "M S L 2 D"]:
        M, S = src.ids.shape
        self.ids.zero_()[:M, :S] = src.ids
        self.lengths.fill_(1)[:M] = src.lengths
        self.graph.replay()
        return self.across[:M]


class Conveyor:
    """Slots with their hypotheses, and the step that moves all of them on."""

    def __init__(self, model: SlottedTransformer, B: int, S: int, T: int, settings: DecodeSettings):
        N = 1 if settings.method == "greedy" else settings.beam
        device = model.words.device
        self.model, self.settings = model, settings
        self.k = min(N + 1, len(model.vocabulary))
        self.slots = model.make_slots(B, N, S, T)
        self.beams = Beams(B, N, T, settings.n_best, settings.length_penalty, device)
        known = model.codes.at(0, T if model.limit is None else min(T, model.limit))
        self.codes = torch.cat([known, known.new_zeros(T - len(known), known.shape[1])])  # no sentence gets there
        self.sentences = np.full(B, FREE)  # which stands in each slot
        self.left = np.zeros(B, np.int64)  # steps that each may still take
        self.on_gpu = device.type == "cuda"
        self.graph = captured(self._step)[0] if self.on_gpu else None
        self.read = Reader(model, B, S)

    @property
    def n_free(self) -> int:
        """Counts the slots in which a sentence may begin."""
        return int((self.sentences == FREE).sum())

    def clear(self) -> None:
        """Gives up all sentences."""
        self.beams.over.fill_(True)
        self.sentences[:] = FREE
        self.left[:] = 0

    def give_up(self, sentence: int) -> None:
        """Frees the slot of a sentence, if it has one."""
        places = np.flatnonzero(self.sentences == sentence)
        self.beams.over[torch.from_numpy(places).to(self.beams.over.device)] = True
        self.sentences[places], self.left[places] = FREE, 0

    def begin(self, sentences: Sequence[int], ids: Sequence[Ids]) -> None:
        """Lets sentences begin in free slots."""
        device = self.model.words.device
        src = make_source(ids)
        limits = max_lengths(self.model, src, self.settings, make_prefix(None, len(ids)))
        free = np.flatnonzero(self.sentences == FREE)[: len(ids)]
        places = torch.from_numpy(free).to(device)
        self.slots.begin(places, self.read(src), src.lengths.to(device))
        self.beams.begin(places, torch.from_numpy(limits).to(device))
        self.sentences[free] = sentences
        self.left[free] = limits

    def run(self) -> None:
        """Takes some steps, no more than the sentence with the most room may take."""
        n_steps = min(CHUNK, int(self.left.max()))
        for _ in range(n_steps):
            if self.graph is None:
                self._step()
            else:
                self.graph.replay()
        self.left = np.maximum(self.left - n_steps, 0)

    def take(self) -> list[tuple[int, list[Hypothesis]]]:
        """Gives the sentences that are over, whose slots are free then."""
        over = self.beams.over.cpu().numpy()
        places = np.flatnonzero(over & (self.sentences != FREE))
        if not len(places):
            return []
        found = self._found(torch.from_numpy(places).to(self.beams.over.device))
        sentences = self.sentences[places].tolist()
        self.sentences[places], self.left[places] = FREE, 0
        return list(zip(sentences, found, strict=True))

    def _found(self, places: Int[Tensor, " M"]) -> list[list[Hypothesis]]:
        """Gives the best hypotheses in some places, followed back where they are."""
        record, ages, how = self.beams.record, self.slots.ages, self.settings
        if self.on_gpu:
            from regard.kernels.beam import follow_back  # only on a GPU is Triton installed

            tokens, gains = follow_back(record, places, ages, how.n_best, how.length_penalty)
            return made_hypotheses(tokens.cpu().numpy(), gains.cpu().numpy(), how)
        lengths = ages[places].numpy()
        return best_hypotheses(record.take(places, int(lengths.max())), lengths, how)

    def _step(self) -> None:
        said = self.model.say(self.beams.tokens, self.slots, self.codes, self.k)
        if said.gains.is_cuda:
            from regard.kernels.beam import advance  # only on a GPU is Triton installed

            return advance(self.beams, self.slots, said.gains, said.tokens)
        return self.slots.go_on(*self.beams.advance(said, self.slots.ages))


Made = TypeVar("Made")


def captured(make: Callable[[], Made]) -> tuple[torch.cuda.CUDAGraph, Made]:
    """Records what is done on the GPU; gives the graph, and what it makes each time.

    It is done twice before, so that libraries choose their ways and kernels are compiled.
    """
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            make()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        made = make()
    return graph, made


def search_all(
    model: SlottedTransformer, sentences: Sequence[Ids], settings: DecodeSettings
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Searches all sentences, longest first, and gives each with its number as soon as it is over.

    What is found is what `greedy_search` and `beam.search` find, up to rounding.
    """
    (check_greedy if settings.method == "greedy" else beam.check)(settings)
    waiting: dict[int, list[int]] = {}  # by the room that the source needs
    for i in sorted(range(len(sentences)), key=lambda i: -len(sentences[i])):
        waiting.setdefault(room(len(sentences[i]) + 1, LEAST_SOURCE), []).append(i)
    for S, line in waiting.items():
        conveyor = _conveyor(model, S, len(line), settings)
        while line or conveyor.n_free < len(conveyor.left):
            yield from turn(conveyor, line, sentences)


@torch.inference_mode()
def turn(
    conveyor: Conveyor, line: list[int], sentences: Sequence[Ids] | Mapping[int, Ids]
) -> list[tuple[int, list[Hypothesis]]]:
    """Lets the next of a line begin where enough slots are free, takes some steps, and gives what is over."""
    n_free, n_slots = conveyor.n_free, len(conveyor.left)
    if line and n_free * REFILL >= n_slots:
        some = line[:n_free]
        del line[:n_free]
        conveyor.begin(some, [sentences[i] for i in some])
    conveyor.run()
    return conveyor.take()


def room(n: int, least: int) -> int:
    """Gives the next power of two, so that few sizes are ever made."""
    return max(least, 1 << (n - 1).bit_length())


def most_slots(S: int, settings: DecodeSettings) -> int:
    """Gives the slots for sources of up to S tokens that fill a batch."""
    return 1 << max(0, (settings.batch_tokens // S).bit_length() - 1)


def target_room(S: int, settings: DecodeSettings) -> int:
    """Gives the room for the longest target of S source tokens."""
    return room(int(S * settings.max_ratio) + settings.max_extra + 1, LEAST_TARGET)


@torch.inference_mode()
def _conveyor(model: SlottedTransformer, S: int, n_sentences: int, settings: DecodeSettings) -> Conveyor:
    """Gives a conveyor for sources of up to S tokens: one of before, where it has the size."""
    B, T = min(most_slots(S, settings), room(n_sentences, 1)), target_room(S, settings)
    kept: dict[tuple[object, ...], Conveyor] = model.conveyors
    key = (B, S, T, settings)
    if key not in kept:
        while len(kept) >= KEPT:
            kept.pop(next(iter(kept)))
        kept[key] = Conveyor(model, B, S, T, settings)
    kept[key].clear()
    return kept[key]


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
        (check_greedy if settings.method == "greedy" else beam.check)(settings)
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
