"""Slots with their hypotheses on a device: beam search in all of them at once, and a search that refills them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from regard.batch import Source, make_source, padded_source
from regard.config import DecodeSettings
from regard.engine.slot_decoder import SlotDecoder
from regard.ops import triton_kernels
from regard.padding import BOS, EOS, Ids
from regard.search.beam import early_stopping, n_scores
from regard.search.hypothesis import (
    INTEGERS,
    REALS,
    History,
    Hypothesis,
    best_hypotheses,
    make_hypothesis,
    max_lengths,
)
from regard.shapes import Bool, Float, Int

CHUNK = 4  # steps between two looks at what is final
MIN_SOURCE, MIN_TARGET = 32, 64  # tokens for which there is always space
REFILL = 8  # sentences begin when this share of the slots is free: encoding few at a time costs as much as many
CAPTURE_AFTER = 12  # times that a number of sources is encoded before a graph is captured for it
FREE = -1  # in a slot without a sentence

Captured = TypeVar("Captured")


def capture(run: Callable[[], Captured]) -> tuple[torch.cuda.CUDAGraph, Captured]:
    """Record what is done on the GPU; return the graph, and what it writes to each time.

    It is done twice before, so that libraries choose their algorithms and kernels are compiled.
    """
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        outputs = run()
    return graph, outputs


class EncoderGraph:
    """Encodes B sources, or fewer, by one captured graph."""

    def __init__(self, decoder: SlotDecoder, B: int, S: int):
        device = decoder.device
        self.ids, self.lengths = torch.full((B, S), EOS, device=device), torch.ones(B, dtype=torch.long, device=device)

        def encode() -> Tensor:
            return decoder.encode(padded_source(self.ids, self.lengths, full=False))

        self.graph, self.cross_cache = capture(encode)

    def __call__(self, src: Source) -> Float[Tensor, "M S L 2 D"]:
        M, S = src.ids.shape
        self.ids.zero_()[:M, :S] = src.ids
        self.lengths.fill_(1)[:M] = src.lengths
        self.graph.replay()
        return self.cross_cache[:M]


class EncoderGraphs:
    """Encodes sources of up to S tokens: on a GPU by captured graphs, for a few numbers of sentences up to B.

    A graph is captured for a number that has come often enough, since that takes as long as encoding a dozen times.
    """

    def __init__(self, decoder: SlotDecoder, B: int, S: int):
        self.decoder, self.S = decoder, S
        self.sizes = [B >> halvings for halvings in (3, 2, 1, 0) if B >> halvings]
        self.n_calls = dict.fromkeys(self.sizes, 0)
        self.graphs: dict[int, EncoderGraph] = {}

    def __call__(self, src: Source) -> Float[Tensor, "M S L 2 D"]:
        size = next(size for size in self.sizes if size >= len(src.lengths))
        self.n_calls[size] += 1
        if self.decoder.device.type != "cuda" or self.n_calls[size] <= CAPTURE_AFTER:
            return self.decoder.encode(src.to(self.decoder.device))
        if size not in self.graphs:
            self.graphs[size] = EncoderGraph(self.decoder, size, self.S)
        return self.graphs[size](src)


class BeamHistory:
    """What was decided at each length: which hypothesis goes on with which token, and which ended there."""

    def __init__(self, B: int, T: int, N: int, device: torch.device):
        self.integers = torch.zeros(len(INTEGERS), B, T, N, dtype=torch.int32, device=device)
        self.reals = torch.zeros(len(REALS), B, T, N, dtype=torch.float64, device=device)
        self.tokens, self.parents, self.end_parents = self.integers.unbind()
        self.log_probs, self.end_log_probs, self.totals, self.end_totals = self.reals.unbind()  # −∞: nothing ended

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """Return what the kernels take, in their order."""
        going_on = (self.tokens, self.parents, self.log_probs, self.totals)
        return *going_on, self.end_parents, self.end_log_probs, self.end_totals

    def write(self, lengths: Int[Tensor, " B"], **columns: Tensor) -> None:
        """Write one column of each of these, at each sentence's length."""
        B, N = columns["tokens"].shape
        at = lengths.long()[:, None, None].expand(B, 1, N)
        for name, column in columns.items():
            stored: Tensor = getattr(self, name)
            stored.scatter_(1, at, column[:, None].to(stored.dtype))

    def take(self, slots: Int[Tensor, " M"], T: int) -> History:
        """Return what was written in some slots, up to a length, in two copies."""
        integers, reals = (stored[:, slots, :T].cpu().numpy() for stored in (self.integers, self.reals))
        return dict(zip(INTEGERS + REALS, [*integers, *reals], strict=True))


class BeamState:
    """The hypotheses of all slots: what `beam_search` keeps in NumPy, for sentences of different lengths.

    A slot is final by the stop rule of `BestFinished.is_final`; it stays as it is until another sentence begins there.
    """

    def __init__(
        self, B: int, N: int, T: int, n_scores: int, length_penalty: float, device: torch.device, rule: str = "full"
    ):
        self.history = BeamHistory(B, T, N, device)
        self.length_penalty = length_penalty
        self.rule = rule  # of early stopping
        self.tokens = torch.full((B, N), BOS, device=device)
        self.totals = torch.zeros(B, N, dtype=torch.float64, device=device)
        self.best_scores = torch.zeros(B, n_scores, dtype=torch.float64, device=device)  # of finished hypotheses
        self.n_finished = torch.zeros(B, dtype=torch.int64, device=device)
        self.limits = torch.ones(B, dtype=torch.int64, device=device)
        self.final = torch.ones(B, dtype=torch.bool, device=device)

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """Return what the kernels take, in their order."""
        return self.tokens, self.totals, self.best_scores, self.n_finished, self.limits, self.final

    def begin(self, slots: Int[Tensor, " M"], limits: Int[Tensor, " M"]) -> None:
        """Let sentences begin in some slots: with one hypothesis, since all begin alike."""
        self.tokens[slots] = BOS
        self.totals[slots, 0] = 0.0
        self.totals[slots, 1:] = -torch.inf
        self.best_scores[slots] = -torch.inf
        self.n_finished[slots] = 0
        self.limits[slots] = limits
        self.final[slots] = False

    def advance(
        self, log_probs: Float[Tensor, "R k"], tokens: Int[Tensor, "R k"], lengths: Int[Tensor, " B"]
    ) -> tuple[Int[Tensor, "B N"], Int[Tensor, " B"]]:
        """Go on with the N best continuations; return the parent of each, and 1 for each sentence that went on."""
        B, N = self.totals.shape
        k = log_probs.shape[1]
        sums = (self.totals[..., None] + log_probs.view(B, N, k)).flatten(1)
        best = sums.sort(dim=1, descending=True, stable=True)
        totals, at = best.values[:, : 2 * N], best.indices[:, : 2 * N]
        tokens, log_probs = (x.view(B, N * k).gather(1, at) for x in (tokens, log_probs))
        parents, is_end = at // k, tokens == EOS
        end_totals = totals[:, :N].masked_fill(~is_end[:, :N], -torch.inf)
        self._count_ends(end_totals / (lengths[:, None] + 1.0) ** self.length_penalty, end_totals > -torch.inf)
        on = is_end.byte().sort(dim=1, stable=True).indices[:, :N]  # N of the 2N are not ends
        going = {"tokens": tokens, "log_probs": log_probs, "parents": parents, "totals": totals}
        going = {name: x.gather(1, on) for name, x in going.items()}
        ending = {"end_totals": end_totals, "end_log_probs": log_probs[:, :N], "end_parents": parents[:, :N]}
        self.history.write(lengths, **going, **ending)
        self.tokens.copy_(going["tokens"])
        self.totals.copy_(going["totals"])
        writes = (~self.final).to(lengths.dtype)
        self.final |= self._is_final(lengths + 1, N)
        return going["parents"], writes

    def free_ends(
        self, log_probs: Float[Tensor, "R k"], tokens: Int[Tensor, "R k"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "R k"], Int[Tensor, "R k"]]:
        """Let hypotheses end at their longest length, at no cost."""
        ended = (self.limits == lengths + 1).repeat_interleave(self.totals.shape[1])[:, None]
        free = torch.full_like(log_probs, -torch.inf)
        free[:, 0] = 0.0
        return torch.where(ended, free, log_probs), tokens.masked_fill(ended, EOS)

    def _count_ends(self, scores: Float[Tensor, "B N"], ended: Bool[Tensor, "B N"]) -> None:
        M = self.best_scores.shape[1]
        scores = torch.cat([self.best_scores, scores], dim=1)
        self.best_scores.copy_(scores.sort(dim=1, descending=True).values[:, :M])
        self.n_finished += ended.sum(1)

    def _is_final(self, lengths: Int[Tensor, " B"], N: int) -> Bool[Tensor, " B"]:
        reach = self.limits.double() if self.length_penalty > 0 else lengths + 1.0
        best, worst = self.totals.amax(1), self.best_scores[:, -1]
        final = (best / reach**self.length_penalty <= worst) | (self.limits <= lengths)
        if self.rule == "full":
            return final | (self.n_finished >= N)
        return final | (best / lengths**self.length_penalty <= worst) if self.rule == "heuristic" else final


class SlotPool:
    """B slots for sources of up to S tokens and targets of up to T, all by the same settings."""

    def __init__(self, decoder: SlotDecoder, B: int, S: int, T: int, settings: DecodeSettings):
        N = 1 if settings.method == "greedy" else settings.beam
        device = decoder.device
        self.decoder, self.settings = decoder, settings
        self.k = min(N + 1, len(decoder.output))
        self.slots = decoder.make_slots(B, N, S, T)
        rule = early_stopping(settings, N)
        self.beams = BeamState(B, N, T, n_scores(settings, N), settings.length_penalty, device, rule)
        known = decoder.positions.at(0, T if decoder.limit is None else min(T, decoder.limit))
        self.codes = torch.cat([known, known.new_zeros(T - len(known), known.shape[1])])  # no sentence gets there
        self.sentences = np.full(B, FREE)  # the number of the one in each slot
        self.steps_left = np.zeros(B, np.int64)
        self.on_gpu = device.type == "cuda"
        self.graph = capture(self._step)[0] if self.on_gpu else None
        self.encode = EncoderGraphs(decoder, B, S)

    @property
    def n_free(self) -> int:
        """Count the slots in which a sentence may begin."""
        return int((self.sentences == FREE).sum())

    @property
    def n_slots(self) -> int:
        return len(self.sentences)

    def clear(self) -> None:
        """Drop all sentences."""
        self.beams.final.fill_(True)
        self.sentences[:] = FREE
        self.steps_left[:] = 0

    def cancel(self, sentence: int) -> None:
        """Free the slot of a sentence, if it has one."""
        slots = np.flatnonzero(self.sentences == sentence)
        self.beams.final[torch.from_numpy(slots).to(self.beams.final.device)] = True
        self.sentences[slots], self.steps_left[slots] = FREE, 0

    def begin(self, sentences: Sequence[int], ids: Sequence[Ids]) -> None:
        """Let sentences begin in free slots."""
        device = self.decoder.device
        src = make_source(ids)
        limits = max_lengths(ids, self.settings, self.decoder.limit)
        free = np.flatnonzero(self.sentences == FREE)[: len(ids)]
        slots = torch.from_numpy(free).to(device)
        self.slots.begin(slots, self.encode(src), src.lengths.to(device))
        self.beams.begin(slots, torch.from_numpy(limits).to(device))
        self.sentences[free] = sentences
        self.steps_left[free] = limits

    def run(self) -> None:
        """Take some steps, no more than the sentence with the most space may take."""
        n_steps = min(CHUNK, int(self.steps_left.max()))
        for _ in range(n_steps):
            if self.graph is None:
                self._step()
            else:
                self.graph.replay()
        self.steps_left = np.maximum(self.steps_left - n_steps, 0)

    def take_final(self) -> list[tuple[int, list[Hypothesis]]]:
        """Return the sentences that are final, whose slots are free then."""
        final = self.beams.final.cpu().numpy()
        slots = np.flatnonzero(final & (self.sentences != FREE))
        if not len(slots):
            return []
        found = self._hypotheses(torch.from_numpy(slots).to(self.beams.final.device))
        sentences = self.sentences[slots].tolist()
        self.sentences[slots], self.steps_left[slots] = FREE, 0
        return list(zip(sentences, found, strict=True))

    def _hypotheses(self, slots: Int[Tensor, " M"]) -> list[list[Hypothesis]]:
        history, lengths, settings = self.beams.history, self.slots.lengths, self.settings
        if self.on_gpu and settings.at_limit != "among":
            kernel = triton_kernels().beam
            args = kernel.HistoryArgs(*history.columns)
            tokens, log_probs = kernel.traceback(args, slots, lengths, settings.n_best, settings.length_penalty)
            return make_hypotheses(tokens.cpu().numpy(), log_probs.cpu().numpy(), settings.length_penalty)
        here, limits = lengths[slots].cpu().numpy(), self.beams.limits[slots].cpu().numpy()
        return best_hypotheses(history.take(slots, int(here.max())), here, settings, limits)

    def _step(self) -> None:
        log_probs, tokens = self.decoder.step(self.beams.tokens, self.slots, self.codes, self.k)
        if self.settings.at_limit == "end":
            log_probs, tokens = self.beams.free_ends(log_probs, tokens, self.slots.lengths)
        if log_probs.is_cuda:
            kernel, beams, slots = triton_kernels().beam, self.beams, self.slots
            args = kernel.BeamArgs(*beams.columns), kernel.HistoryArgs(*beams.history.columns)
            rules = beams.length_penalty, beams.rule
            return kernel.advance(*args, slots.origins, slots.lengths, log_probs, tokens, *rules)
        return self.slots.advance(*self.beams.advance(log_probs, tokens, self.slots.lengths))


def make_hypotheses(
    tokens: Int[np.ndarray, "M n_best T1"], log_probs: Float[np.ndarray, "M n_best T"], length_penalty: float
) -> list[list[Hypothesis]]:
    """Return the hypotheses that were traced back on the GPU: before the tokens of each stands their number."""
    counts = tokens[:, :, 0]
    longest = int(counts.max(initial=0))
    columns = (counts, tokens[:, :, 1 : 1 + longest], log_probs[:, :, :longest])
    return [
        [make_hypothesis(ids[:n], values[:n], length_penalty) for n, ids, values in zip(*each, strict=True) if n]
        for each in zip(*(x.tolist() for x in columns), strict=True)
    ]


def round_up(n: int, least: int) -> int:
    """Return the next power of two, so that there are few sizes."""
    return max(least, 1 << (n - 1).bit_length())


def max_slots(S: int, settings: DecodeSettings) -> int:
    """Return the number of slots for sources of up to S tokens that fill a batch."""
    return 1 << max(0, (settings.batch_tokens // S).bit_length() - 1)


def target_size(S: int, settings: DecodeSettings) -> int:
    """Return the space for the longest target of S source tokens."""
    return round_up(int(S * settings.max_ratio) + settings.max_extra + 1, MIN_TARGET)


@torch.inference_mode()
def refill_and_run(
    pool: SlotPool, waiting: list[int], ids: Sequence[Ids] | Mapping[int, Ids]
) -> list[tuple[int, list[Hypothesis]]]:
    """Let waiting sentences begin where enough slots are free, take some steps, and return what is final."""
    n_free = pool.n_free
    if waiting and n_free * REFILL >= pool.n_slots:
        some = waiting[:n_free]
        del waiting[:n_free]
        pool.begin(some, [ids[i] for i in some])
    pool.run()
    return pool.take_final()


def search_in_slots(
    find_pool: Callable[[int, int], SlotPool], sources: Sequence[Ids]
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Search all sources, longest first, and yield each with its index as soon as it is final.

    `find_pool` returns an empty pool for sources of up to so many tokens, and of this number.
    """
    by_size: dict[int, list[int]] = {}
    for i in sorted(range(len(sources)), key=lambda i: -len(sources[i])):
        by_size.setdefault(round_up(len(sources[i]) + 1, MIN_SOURCE), []).append(i)
    for S, waiting in by_size.items():
        pool = find_pool(S, len(waiting))
        while waiting or pool.n_free < pool.n_slots:
            yield from refill_and_run(pool, waiting, sources)
