"""Compile and call the C++ library."""

import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ctypes import CDLL, CFUNCTYPE, POINTER, Structure, byref, c_double, c_int, c_int64, c_void_p
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar

import numpy as np

SOURCES = Path(__file__).parent
ALWAYS = ("-std=c++17", "-O3", "-shared", "-fPIC")
# The first that the compiler knows are taken: some have no OpenMP, some call the machine's own code by another name.
FLAGS = (("-march=native", "-fopenmp"), ("-march=native",), ("-mcpu=native",), ())
PATIENCE = 120  # seconds for one attempt; three are usual


USER = os.geteuid() if hasattr(os, "geteuid") else 0  # as `stat` has it where there are no users


class ForeignFolderError(OSError):
    """A cache is a folder of somebody else, whose code must not run here."""


class CompileError(Exception):
    """There is no compiler, or it did not take the sources."""


def compiled(folder: Path, flags: Sequence[Sequence[str]] = FLAGS) -> Path:
    """Return the library in a folder, compiled there if it is not: whole, or not at all."""
    compiler = find_compiler()
    key = fingerprint(compiler, flags)
    make_private(folder)
    for path in folder.glob(f"{key}-*.so"):
        if is_private(path) and path.name == _name(key, path.read_bytes()):
            return path
        path.unlink(missing_ok=True)  # a damaged file may crash whoever loads it, and one of others do anything
    with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as workshop:
        made = _attempts(compiler, flags, Path(workshop) / "regard.so")
        made.chmod(0o700)
        target = folder / _name(key, made.read_bytes())
        made.replace(target)
    return target


def make_private(folder: Path) -> None:
    """Create a folder that nobody else can write to, or make it so, and remove what killed compilers left in it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    about = folder.stat()
    if about.st_uid != USER:
        raise ForeignFolderError(f"{folder} must belong to this user to load code from it, got user {about.st_uid}")
    if stat.S_IMODE(about.st_mode) != 0o700:
        folder.chmod(0o700)
    for left in folder.glob("making-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > PATIENCE * len(FLAGS):
                shutil.rmtree(left, ignore_errors=True)


def is_private(path: Path) -> bool:
    """Tell whether a file is of this user, and nobody else could have written it."""
    about = path.lstat()
    return stat.S_ISREG(about.st_mode) and about.st_uid == USER and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def cache_folder() -> Path:
    """Return the folder in which this user's programs keep what they can make again; raise OSError without a home."""
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(given) if given else Path.home() / ".cache") / "regard"
    except RuntimeError as error:
        raise OSError("there is no home folder to keep it in: set HOME or XDG_CACHE_HOME") from error


def find_compiler() -> Path:
    """Return the C++ compiler: the one that CXX names, or the system's."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        found = shutil.which(name) if name else None
        if found:
            return Path(found).resolve()
    raise CompileError("no C++ compiler was found: c++, g++ or clang++")


def fingerprint(compiler: Path, flags: Sequence[Sequence[str]]) -> str:
    """Return a key that changes with anything that would make another library."""
    about = compiler.stat()
    made_by = repr((str(compiler), about.st_size, about.st_mtime_ns, ALWAYS, tuple(map(tuple, flags)), _machine()))
    digest = blake2b(made_by.encode(), digest_size=8)
    for path in sorted([*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp")]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _attempts(compiler: Path, flags: Sequence[Sequence[str]], target: Path) -> Path:
    said = ""
    for some in flags:
        command = [str(compiler), *ALWAYS, *some, str(SOURCES / "bindings.cpp"), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode == 0:
            return target
        said = said or done.stderr.strip()
    raise CompileError(f"{compiler} did not compile the sources: {said[:500]}")


def _machine() -> tuple[str, ...]:
    """Describe the processor, since the library uses its instructions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    known = {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    return platform.system(), platform.machine(), platform.processor(), *sorted(known)


def _name(key: str, content: bytes) -> str:
    return f"{key}-{blake2b(content, digest_size=8).hexdigest()}.so"


SWITCH = "REGARD_NATIVE"  # 0 in the environment leaves PyTorch to do all


class ModelConfig(Structure):
    """What a model is, in integers; model.h has the same."""

    _fields_ = [
        (name, c_int64)
        for name in (
            *("D", "H", "F", "src_vocab_size", "tgt_vocab_size", "n_encoder_layers", "n_decoder_layers"),
            *("norm", "norm_first", "activation", "precision", "d_rotary"),
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
        *((name, c_int64) for name in ("N", "n_best", "min_token", "T")),
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

    team: ClassVar[int | None] = None  # the process whose threads OpenMP may have started

    def __init__(self, path: Path):
        self.path = path
        self._functions = functions = CDLL(str(path))
        for name, arguments in SIGNATURES.items():
            getattr(functions, name).argtypes = arguments
        self.free_model, self.free_decoder = functions.regard_model_free, functions.regard_decoder_free
        self.free_beam_search = functions.regard_beam_search_free
        self.free_model.restype = self.free_decoder.restype = self.free_beam_search.restype = None

    def has_fast_int8(self) -> bool:
        """Tell whether this machine multiplies bytes faster than floats."""
        return bool(self._functions.regard_has_fast_int8())

    def new_model(self, config: ModelConfig, arrays: Iterator[np.ndarray | None]) -> int:
        """Pack a model's parameters, each when it is its turn, and return the address of the result."""
        address, alive = c_void_p(), deque[np.ndarray | None](maxlen=3)  # a norm takes three before it reads the first
        failures: list[BaseException] = []

        def take() -> int:
            try:
                alive.append(next(arrays))
                return 0 if alive[-1] is None else alive[-1].ctypes.data
            except BaseException as error:  # it cannot pass through C++
                failures.append(error)
                return 0

        status = self._functions.regard_model_new(byref(config), NEXT_ARRAY(take), byref(address))
        if failures:
            raise failures[0]
        _check(status)
        return address.value or 0

    def new_decoder(self, model: int, src: SourceBatch, n_hypotheses: int, threads: int) -> int:
        """Encode sentences, and return the address of the decoder of their hypotheses."""
        address = c_void_p()
        Library.team = os.getpid() if threads > 1 else Library.team  # all other work of a search comes after this
        _check(self._functions.regard_decoder_new(model, byref(src), n_hypotheses, threads, byref(address)))
        return address.value or 0

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
        address = c_void_p()
        _check(self._functions.regard_beam_search_new(decoder, byref(args), byref(address)))
        return address.value or 0

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


NEXT_ARRAY = CFUNCTYPE(c_void_p)
SIGNATURES = {
    "regard_has_fast_int8": (),
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
    """Return the library, compiled now if need be; raise UnavailableError, with the reason, where there is none."""
    if os.environ.get(SWITCH) == "0":
        raise SwitchedOffError(f"{SWITCH} is 0")
    try:
        return Library(compiled(cache_folder()))
    except (CompileError, subprocess.SubprocessError) as error:
        raise UnavailableError(str(error)) from error
    except ForeignFolderError as error:
        warnings.warn(f"{error}: compiling for this process alone; name a folder with XDG_CACHE_HOME", stacklevel=3)
        return _open_for_now()
    except OSError:
        return _open_for_now()


def _open_for_now() -> Library:
    """Compile for this process alone, where nothing can be kept."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            return Library(compiled(Path(folder)))
    except (CompileError, subprocess.SubprocessError, OSError) as error:
        raise UnavailableError(str(error)) from error


def _check(outcome: int) -> None:
    if outcome:
        error, text = OUTCOMES[outcome]
        raise error(text)


def n_threads() -> int:
    """Return the threads that one search may use: PyTorch's number where it is loaded, else that of the free cores.

    In a process forked off after a search it is 1: OpenMP would wait for its threads, which stayed with the parent.
    """
    if Library.team not in {None, os.getpid()}:
        return 1
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch.get_num_threads()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
