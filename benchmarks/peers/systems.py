"""The systems that learn side by side: what they get, and how each is brought to its pace."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch

from regard.config import ModelSettings, TrainSettings
from regard.train.batching import StepBatches

from .groups import real_lengths, slots
from .learning import PEERS, Take, regard_step, usual_step
from .work import reading_flops, writing_flops

OURS, TWICE, COMPILED = "regard", "regard, R-Drop", ", compiled"
R_DROP = 5.0  # as its paper has it for translation (arXiv:2106.14448)
EAGER_ALONE = {"Joey NMT"}  # on a CPU too
COMPILING = 30.0  # seconds that it may take, before one has been seen
WAYS = {"Marian": "pip install '.[bench]'", "Joey NMT": "see benchmarks/peers/joey.py"}

Make = Callable[[], Take]


@dataclass(frozen=True)
class Work:
    """What all systems of a table get."""

    sizes: ModelSettings
    vocab_size: int
    settings: TrainSettings
    device: torch.device
    groups: list[StepBatches]

    @cached_property
    def n_tokens(self) -> int:
        """Counts the real target tokens."""
        return sum(group.n_tokens for group in self.groups)

    @cached_property
    def n_slots(self) -> int:
        """Counts the places for target tokens, padding included."""
        return sum(slots(group) for group in self.groups)

    @cached_property
    def flops(self) -> float:
        """Counts the operations of forward and backward, which does twice as many again."""
        batches = [group.parts[0].batch(torch.device("cpu"), group.n_tokens) for group in self.groups]
        lengths = [pair for batch in batches for pair in real_lengths(batch)]
        reading = reading_flops(self.sizes, [src for src, _ in lengths])
        return 3 * (reading + writing_flops(self.sizes, self.vocab_size, lengths))


@dataclass(frozen=True)
class Start:
    """What a system needs before it is at its pace, and the most memory that it ever holds on a GPU."""

    first_s: float  # for the first step
    ready_s: float  # for as many as it takes until every shape is compiled or captured
    peak_bytes: int | None
    loss: float  # after them, −log p of a token; near ln V at the start


def our_make(work: Work, r_drop: float = 0.0) -> Make:
    """Gives what makes our system."""
    settings = replace(work.settings, r_drop=r_drop)
    return partial(regard_step, work.sizes, work.vocab_size, work.groups, settings, work.device)


def makers(work: Work, manner: str, leave_out: set[str]) -> dict[str, Make]:
    """Gives what makes each system: ours, and others as they are and in the manner of a GPU compiled too."""
    batches = [group.parts[0].batch(work.device, group.n_tokens) for group in work.groups]
    made: dict[str, Make] = {OURS: our_make(work)}
    if manner == "cuda":
        made[TWICE] = our_make(work, R_DROP)
    for name, peer in PEERS.items():
        if name in leave_out or (manner == "cuda" and name in EAGER_ALONE):
            continue
        for compiled in (False, True) if manner == "cuda" else (False,):
            make = partial(peer, work.sizes, work.vocab_size, compiled)
            label = f"{name}{COMPILED}" if compiled else name
            made[label] = partial(usual_step, make, batches, work.settings, work.device)
    return made


def start(make: Make, n: int, device: torch.device) -> tuple[Take, Start]:
    """Makes a system and brings it to its pace: a shape of ours is captured when it comes for the second time."""
    on_gpu = device.type == "cuda"
    before = torch.cuda.memory_allocated() if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    take = make()
    _wait(device)
    began = time.perf_counter()
    loss = take(0)
    _wait(device)
    first = time.perf_counter() - began
    for i in (*range(1, n), *range(n), *range(n)) if on_gpu else range(1, n):
        loss = take(i)
    _wait(device)
    peak = torch.cuda.max_memory_allocated() - before if on_gpu else None
    if not bool(loss.isfinite()):
        raise RuntimeError(f"the loss must be finite, got {loss.item()}")
    return take, Start(first, time.perf_counter() - began, peak, loss.item())


def start_all(
    made: dict[str, Make], work: Work, deadline: float
) -> tuple[dict[str, Take], dict[str, Start], list[str]]:
    """Starts one system after another; says which ones take no part, and why."""
    takes: dict[str, Take] = {}
    starts: dict[str, Start] = {}
    notes: list[str] = []
    for name, make in made.items():
        longest = max([COMPILING, *(begun.ready_s for begun in starts.values())])
        if name.endswith(COMPILED) and time.perf_counter() + longest > deadline:
            notes.append(f"{name} left out: compiling it might end after --limit")
            continue
        try:
            takes[name], starts[name] = start(make, len(work.groups), work.device)
        except ImportError as error:
            way = WAYS.get(name.removesuffix(COMPILED), "it cannot be compiled here")
            notes.append(f"{name} left out ({_first_line(error)}): {way}")
        except RuntimeError as error:
            notes.append(f"{name} left out: {_first_line(error)}")
    return takes, starts, notes


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
