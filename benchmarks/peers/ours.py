"""Our own decoders, made to write as many tokens as all others do."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.batch import Batch, Source, make_source
from regard.config import DecodeSettings
from regard.engine import swift
from regard.engine.cpu import NativeTransformer
from regard.engine.cpu import search as native_search
from regard.model import Seq2Seq, State, Transformer
from regard.model.seq2seq import Choices
from regard.native import UnavailableError, open_library
from regard.padding import EOS
from regard.search import SEARCH

from .work import Task

Decode = Callable[[list[Task]], list[Any]]


class Endless(Seq2Seq):
    """Our model, which never says EOS."""

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

    def choices(self, tokens: Tensor, state: State, must: Tensor | None, k: int) -> tuple[Choices, State]:
        best, state = self.inner.choices(tokens, state, must, k + 1)
        gains, said = best.gains.numpy(), best.tokens.numpy()
        if (said == EOS).any():
            order = (said == EOS).argsort(axis=1, kind="stable")
            gains, said = np.take_along_axis(gains, order, 1), np.take_along_axis(said, order, 1)
        return Choices(torch.from_numpy(gains[:, :k]), torch.from_numpy(said[:, :k])), state


def decode_regard(model: Seq2Seq, beam: int) -> Decode:
    """Makes the call that decodes batches with one of our models, compiled ones without Python."""
    endless, method = Endless(model).eval(), "greedy" if beam == 1 else "beam"
    if isinstance(model, NativeTransformer):
        model.least = EOS + 1

    def call(tasks: list[Task]) -> list[list[list[int]]]:
        written = []
        for task in tasks:
            settings = DecodeSettings(method=method, beam=beam, max_ratio=0.0, max_extra=task.n_tokens)
            src = make_source(task.sources)
            if isinstance(model, NativeTransformer):
                found = native_search(model, src, settings)
            else:
                found = SEARCH[method](endless, src, settings, None)
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
        packed = decode_regard(swift(model, precision), beam)
        systems[f"regard {precision}"] = with_threads(packed, threads)
        if threads > 1:
            systems[f"regard {precision}, {threads} workers"] = in_threads(packed, threads)
    return {**systems, "regard float32, not packed": with_threads(decode_regard(model, beam), threads)}


def engine() -> str:
    """Tells what our packed models run on."""
    try:
        return f"compiled: {open_library().path.name}"
    except UnavailableError as error:
        return f"PyTorch, since {error}"
