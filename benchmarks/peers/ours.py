"""Our own decoders, made to write as many tokens as all others do."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from regard.batch import Batch, Source
from regard.config import DecodeSettings
from regard.engine import Engine, select_engine
from regard.engine.plain import PlainEngine
from regard.model import Seq2Seq, State, Transformer
from regard.native import UnavailableError, open_library
from regard.padding import EOS

from .work import Task

Decode = Callable[[list[Task]], list[Any]]


class Endless(Seq2Seq):
    """Our model, which never writes EOS."""

    def __init__(self, inner: Seq2Seq):
        super().__init__()
        self.inner = inner

    def features(self, batch: Batch) -> Tensor:
        return self.inner.features(batch)

    def start(self, src: Source, n_hypotheses: int) -> State:
        return self.inner.start(src, n_hypotheses)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        logits, state = self.inner.step(tokens, state)
        logits[:, EOS] = -torch.inf
        return logits, state


def endless(engine: Any) -> Engine:
    """Return an engine that never writes EOS."""
    if isinstance(engine, PlainEngine):
        return PlainEngine(Endless(engine.model))
    engine.decoder.min_token = EOS + 1
    return engine


def decode_regard(engine: Engine, beam: int) -> Decode:
    """Return the call that decodes batches with one of our engines."""
    engine, method = endless(engine), "greedy" if beam == 1 else "beam"

    def call(tasks: list[Task]) -> list[list[list[int]]]:
        written = []
        for task in tasks:
            settings = DecodeSettings(method=method, beam=beam, max_ratio=0.0, max_extra=task.n_tokens)
            found = engine.search_batch(task.sources, settings)
            written.append([hypotheses[0].ids for hypotheses in found])
        return written

    return call


def in_threads(decode: Decode, workers: int) -> Decode:
    """Lets several threads of Python take batches in turn, each with one thread of PyTorch's."""
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))

    def one(task: Task) -> Any:
        return decode([task])[0]

    return lambda tasks: list(pool.map(one, tasks))


def with_threads(decode: Decode, threads: int) -> Decode:
    """Gives PyTorch its threads back before each call: CTranslate2 sets the number of the OpenMP that they share."""

    def call(tasks: list[Task]) -> list[Any]:
        torch.set_num_threads(threads)
        return decode(tasks)

    return call


def our_systems(model: Transformer, beam: int, threads: int) -> dict[str, Decode]:
    """Makes our versions, packed as `regard.load` packs them, and the plain model beside them.

    Packed for compiled code, or for PyTorch where there is none: the signature says which.
    """
    systems = {}
    for precision in ("float32", "int8"):
        packed = decode_regard(select_engine(model, precision), beam)
        systems[f"regard {precision}"] = with_threads(packed, threads)
        if threads > 1:
            systems[f"regard {precision}, {threads} workers"] = in_threads(packed, threads)
    return {**systems, "regard float32, not packed": with_threads(decode_regard(PlainEngine(model), beam), threads)}


def engine() -> str:
    """Tells what our packed models run on."""
    try:
        return f"compiled: {open_library().path.name}"
    except UnavailableError as error:
        return f"PyTorch, since {error}"
