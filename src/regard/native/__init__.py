"""Open and call the C++ library."""

import os
import sys
import warnings
from array import array
from collections import deque
from collections.abc import Iterator
from ctypes import CDLL, CFUNCTYPE, POINTER, Structure, addressof, byref, c_char, c_double, c_int, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.native.libraries import LEVELS, MACHINE, ForeignFolderError, built_here, cache_folder, prebuilt
from regard.shapes import Array

SWITCH = "REGARD_NATIVE"  # in the environment: 0 leaves PyTorch to do all, 1 is the best there is, a level's name that
HERE = "native"  # the level of a library that was built for just this machine


# Numbers as C++ reads and writes them, one after another in memory: of a file, of Python's own arrays, or of NumPy.
Numbers = memoryview | array | bytearray | Array


@dataclass(frozen=True, eq=False)
class Int8Rows:
    """A matrix in 8 bits, from -127 to 127, with the scale of each row."""

    values: memoryview | Array
    scales: Numbers

    def __len__(self) -> int:
        return len(self.values)


Matrix = memoryview | Array | Int8Rows


def address(numbers: Numbers) -> int:
    """Return where numbers lie, for as long as somebody holds them."""
    if isinstance(numbers, array):
        return numbers.buffer_info()[0]
    if isinstance(numbers, memoryview | bytearray):
        return addressof(c_char.from_buffer(numbers)) if len(numbers) else 0
    return numbers.ctypes.data


class Weights(Structure):
    """Where a matrix lies; gemm_f32.h has the same."""

    _fields_ = [("values", c_void_p), ("scales", c_void_p)]


class ModelConfig(Structure):
    """What a model is, in integers; model.h has the same."""

    _fields_ = [
        (name, c_int64)
        for name in (
            *("D", "H", "F", "src_vocab_size", "tgt_vocab_size", "n_encoder_layers", "n_decoder_layers"),
            *("norm", "norm_first", "activation", "precision", "d_rotary", "scale_embedding", "embedding_norm"),
        )
    ]


class SourceBatch(Structure):
    """Source sentences; encoder.h has the same."""

    _fields_ = [("ids", c_void_p), ("lengths", c_void_p), ("B", c_int64), ("S", c_int64), ("positions", c_void_p)]


class TopKOptions(Structure):
    """Which next tokens are wanted; topk.h has the same."""

    _fields_ = [("k", c_int64), ("min_token", c_int64), ("forced", c_void_p)]


class BeamSearchArgs(Structure):
    """What is wanted of a search, and where its history goes (`search/hypothesis.py`); beam_search.h has the same."""

    _fields_ = [
        *(
            (name, c_int64)
            for name in ("N", "n_best", "min_token", "T", "n_scores", "early_stopping", "first_token", "forced_end")
        ),
        ("length_penalty", c_double),
        *((name, c_void_p) for name in ("max_lengths", "shortlist")),
        ("n_shortlist", c_int64),
        *((name, c_void_p) for name in ("positions", "tokens", "parents", "end_parents")),
        *((name, c_void_p) for name in ("log_probs", "end_log_probs", "totals", "end_totals", "lengths")),
    ]


class UnavailableError(Exception):
    """There is no compiled code here; the text says why."""


class SwitchedOffError(UnavailableError):
    """The user wants none."""


class Library:
    """Calls into C++. Addresses are integers; whoever passes one keeps what lies there alive."""

    def __init__(self, path: Path, level: str = HERE):
        self.path = path
        self.level = level
        self._functions = functions = CDLL(str(path))
        for name, arguments in SIGNATURES.items():
            getattr(functions, name).argtypes = arguments
        self.free_model, self.free_decoder = functions.regard_model_free, functions.regard_decoder_free
        self.free_beam_search = functions.regard_beam_search_free
        self.free_model.restype = self.free_decoder.restype = self.free_beam_search.restype = None

    def best_level(self) -> int:
        """Return which of the levels of `build.py` is the best that this processor has."""
        return self._functions.regard_best_level()

    def new_model(self, config: ModelConfig, arrays: Iterator[Matrix | None]) -> int:
        """Pack a model's parameters, each when it is its turn, and return the address of the result."""
        model, alive = c_void_p(), deque[Any](maxlen=7)  # a map takes six before it reads the first
        failures: list[BaseException] = []

        def take(wanted: Any) -> None:
            try:
                alive.append(found := next(arrays))
                if isinstance(found, Int8Rows):
                    wanted[0] = Weights(address(found.values), address(found.scales))
                elif found is not None:
                    wanted[0] = Weights(address(found), None)
            except BaseException as error:  # it cannot pass through C++
                failures.append(error)

        status = self._functions.regard_model_new(byref(config), NEXT_ARRAY(take), byref(model))
        if failures:
            raise failures[0]
        _check(status)
        return model.value or 0

    def new_decoder(self, model: int, src: SourceBatch, n_hypotheses: int, threads: int) -> int:
        """Encode sentences, and return the address of the decoder of their hypotheses."""
        decoder = c_void_p()
        _check(self._functions.regard_decoder_new(model, byref(src), n_hypotheses, threads, byref(decoder)))
        return decoder.value or 0

    def step(self, decoder: int, tokens: int, codes: int, threads: int, logits: int) -> None:
        """Write the logits that follow one token of each hypothesis."""
        _check(self._functions.regard_decoder_step(decoder, tokens, codes, threads, logits))

    def top_k(
        self, decoder: int, tokens: int, codes: int, options: TopKOptions, threads: int, log_probs: int, best: int
    ) -> None:
        """Write the most probable next tokens, and their log-probabilities."""
        arguments = (decoder, tokens, codes, byref(options), threads, log_probs, best)
        _check(self._functions.regard_decoder_top_k(*arguments))

    def new_beam_search(self, decoder: int, args: BeamSearchArgs) -> int:
        """Begin to search all hypotheses to their ends, and return the address of the search."""
        search = c_void_p()
        _check(self._functions.regard_beam_search_new(decoder, byref(args), byref(search)))
        return search.value or 0

    def advance(self, search: int, n_steps: int, threads: int) -> bool:
        """Take some steps; tell whether all sentences are final."""
        done = c_int()
        _check(self._functions.regard_beam_search_advance(search, n_steps, threads, byref(done)))
        return bool(done.value)

    def reorder(self, decoder: int, rows: int, n_rows: int) -> None:
        """Let hypotheses continue others."""
        _check(self._functions.regard_decoder_reorder(decoder, rows, n_rows))

    def keep(self, decoder: int, sentences: int, n_sentences: int) -> None:
        """Go on with some sentences only."""
        _check(self._functions.regard_decoder_keep(decoder, sentences, n_sentences))


NEXT_ARRAY = CFUNCTYPE(None, POINTER(Weights))
SIGNATURES = {
    "regard_best_level": (),
    "regard_model_new": (POINTER(ModelConfig), NEXT_ARRAY, POINTER(c_void_p)),
    "regard_model_free": (c_void_p,),
    "regard_decoder_new": (c_void_p, POINTER(SourceBatch), c_int64, c_int, POINTER(c_void_p)),
    "regard_decoder_free": (c_void_p,),
    "regard_decoder_step": (c_void_p, c_void_p, c_void_p, c_int, c_void_p),
    "regard_decoder_top_k": (c_void_p, c_void_p, c_void_p, POINTER(TopKOptions), c_int, c_void_p, c_void_p),
    "regard_beam_search_new": (c_void_p, POINTER(BeamSearchArgs), POINTER(c_void_p)),
    "regard_beam_search_advance": (c_void_p, c_int64, c_int, POINTER(c_int)),
    "regard_beam_search_free": (c_void_p,),
    "regard_decoder_reorder": (c_void_p, c_void_p, c_int64),
    "regard_decoder_keep": (c_void_p, c_void_p, c_int64),
}
OUTCOMES = {
    1: (MemoryError, "there is not enough memory for this batch: use a smaller one"),
    2: (IndexError, "a token is outside of the vocabulary"),
    3: (IndexError, "a row is outside of the batch"),
}


def open_library() -> Library:
    """Return the library for this processor; raise UnavailableError, with the reason, where there is none.

    One that was built for just this machine comes first, then the best of those that came with the package.
    """
    choice = os.environ.get(SWITCH, "").removeprefix("1")
    if choice == "0":
        raise SwitchedOffError(f"{SWITCH} is 0")
    machine = MACHINE
    if choice not in {"", HERE, *LEVELS.get(machine, {})}:
        known = ", ".join(("0", "1", HERE, *LEVELS.get(machine, {})))
        raise ValueError(f"{SWITCH} must be one of {known}, got {choice!r}")
    try:
        own = _own_library() if choice in {"", HERE} else None
        return own or _prebuilt_library(machine, choice)
    except OSError as error:  # a file that is no library, or one for another system
        raise UnavailableError(str(error)) from error


def _own_library() -> Library | None:
    try:
        path = built_here(cache_folder())
    except ForeignFolderError as error:
        warnings.warn(f"{error}: it is left alone; name another folder with XDG_CACHE_HOME", stacklevel=4)
        return None
    except OSError:  # no home
        return None
    return None if path is None else Library(path)


def _prebuilt_library(machine: str, choice: str) -> Library:
    found = prebuilt(machine)
    if not found or choice == HERE:
        just = "just " if choice == HERE else ""
        raise UnavailableError(f"no library was built for {just}this machine ({machine})")
    least, path = next(iter(found.items()))
    library = Library(path, least)
    runnable = list(LEVELS[machine])[: library.best_level() + 1]
    if choice and (choice not in runnable or choice not in found):
        raise ValueError(f"{SWITCH} must be a level that this processor has ({', '.join(runnable)}), got {choice!r}")
    best = choice or next(level for level in reversed(runnable) if level in found)
    return library if best == least else Library(found[best], best)


def _check(outcome: int) -> None:
    if outcome:
        error, text = OUTCOMES[outcome]
        raise error(text)


def n_threads() -> int:
    """Return the threads that one search may use: PyTorch's number where it is loaded, else that of the free cores."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch.get_num_threads()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
