"""Compile and call the C++ library."""

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes import CDLL, POINTER, Structure, byref, c_double, c_int, c_int64, c_void_p
from hashlib import blake2b
from pathlib import Path

SOURCES = Path(__file__).parent
ALWAYS = ("-std=c++17", "-O3", "-shared", "-fPIC")
# The first that the compiler knows are taken: some have no OpenMP, some call the machine's own code by another name.
FLAGS = (("-march=native", "-fopenmp"), ("-march=native",), ("-mcpu=native",), ())
PATIENCE = 120  # seconds for one attempt; three are usual


class CompileError(Exception):
    """There is no compiler, or it did not take the sources."""


def compiled(folder: Path, flags: Sequence[Sequence[str]] = FLAGS) -> Path:
    """Gives the library from a folder, made there if it is not: whole, or not at all."""
    compiler = find_compiler()
    key = fingerprint(compiler, flags)
    for path in folder.glob(f"{key}-*.so"):
        if path.name == _name(key, path.read_bytes()):
            return path
        path.unlink(missing_ok=True)  # a damaged file may crash whoever loads it
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as workshop:
        made = _attempts(compiler, flags, Path(workshop) / "regard.so")
        target = folder / _name(key, made.read_bytes())
        made.replace(target)
    return target


def cache_folder() -> Path:
    """Names the folder in which this user's programs keep what they can make again."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "regard"


def find_compiler() -> Path:
    """Finds the C++ compiler: the one that CXX names, or the system's."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        found = shutil.which(name) if name else None
        if found:
            return Path(found).resolve()
    raise CompileError("no C++ compiler was found: c++, g++ or clang++")


def fingerprint(compiler: Path, flags: Sequence[Sequence[str]]) -> str:
    """Changes with anything that would make another library."""
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
    """Describes the processor, since the library has its instructions."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    known = {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    return platform.system(), platform.machine(), platform.processor(), *sorted(known)


def _name(key: str, content: bytes) -> str:
    return f"{key}-{blake2b(content, digest_size=8).hexdigest()}.so"


# The record of a search, as `Record` has it: whole numbers of 32 bits, and real ones of 64.
WHOLE, REAL = ("tokens", "parents", "end_parents"), ("gains", "end_gains", "totals", "end_totals")
SWITCH = "REGARD_NATIVE"  # 0 in the environment leaves PyTorch to do all


class Sizes(Structure):
    """What a model is, in whole numbers: `ModelConfig` in model.h."""

    _fields_ = [
        (name, c_int64)
        for name in (
            *("D", "H", "F", "src_vocab_size", "tgt_vocab_size", "n_encoder_layers", "n_decoder_layers"),
            *("norm", "norm_first", "activation", "precision", "d_rotary"),
        )
    ]


class Sentences(Structure):
    """Source sentences: `SourceBatch` in encoder.h."""

    _fields_ = [("ids", c_void_p), ("lengths", c_void_p), ("B", c_int64), ("S", c_int64), ("positions", c_void_p)]


class Choice(Structure):
    """What is wanted of the next tokens: `TopKOptions` in topk.h."""

    _fields_ = [("k", c_int64), ("min_token", c_int64), ("forced", c_void_p)]


class Search(Structure):
    """What is wanted of a search, and where its record lies: `BeamSearchArgs` in beam_search.h."""

    _fields_ = [
        *((name, c_int64) for name in ("N", "n_best", "min_token", "T")),
        ("length_penalty", c_double),
        *((name, c_void_p) for name in ("max_lengths", "shortlist")),
        ("n_shortlist", c_int64),
        *((name, c_void_p) for name in ("positions", *WHOLE, *REAL, "lengths")),
    ]


class UnavailableError(Exception):
    """There is no compiled code here; the text says why."""


class Library:
    """Calls into C++. Addresses are whole numbers; whoever passes one keeps what lies there alive."""

    def __init__(self, path: Path):
        self.path = path
        self._functions = functions = CDLL(str(path))
        for name, arguments in SIGNATURES.items():
            getattr(functions, name).argtypes = arguments
        self.forget_model, self.forget_writer = functions.regard_model_free, functions.regard_decoder_free
        self.forget_search = functions.regard_beam_search_free
        self.forget_model.restype = self.forget_writer.restype = self.forget_search.restype = None

    def bytes_are_quick(self) -> bool:
        """Tells whether this machine multiplies bytes faster than floats."""
        return bool(self._functions.regard_has_fast_int8())

    def model(self, sizes: Sizes, arrays: list[int]) -> int:
        """Packs a model's parameters, and gives the address of the result."""
        made = c_void_p()
        _check(self._functions.regard_model_new(byref(sizes), (c_void_p * len(arrays))(*arrays), byref(made)))
        return made.value or 0

    def start(self, model: int, src: Sentences, n_hypotheses: int, threads: int) -> int:
        """Reads sentences, and gives the address of the writer of their hypotheses."""
        made = c_void_p()
        _check(self._functions.regard_decoder_new(model, byref(src), n_hypotheses, threads, byref(made)))
        return made.value or 0

    def step(self, writer: int, tokens: int, code: int, threads: int, logits: int) -> None:
        """Writes the logits that follow one token of each hypothesis."""
        _check(self._functions.regard_decoder_step(writer, tokens, code, threads, logits))

    def likeliest(
        self, writer: int, tokens: int, code: int, choice: Choice, threads: int, gains: int, said: int
    ) -> None:
        """Writes the likeliest tokens that follow, and their log-probabilities."""
        _check(self._functions.regard_decoder_top_k(writer, tokens, code, byref(choice), threads, gains, said))

    def search(self, writer: int, search: Search) -> int:
        """Begins to write all hypotheses to their ends, and gives the address of the search."""
        made = c_void_p()
        _check(self._functions.regard_beam_search_new(writer, byref(search), byref(made)))
        return made.value or 0

    def go_on(self, searching: int, n_steps: int, threads: int) -> bool:
        """Takes some steps; tells whether all sentences are over."""
        over = c_int()
        _check(self._functions.regard_beam_search_advance(searching, n_steps, threads, byref(over)))
        return bool(over.value)

    def reorder(self, writer: int, rows: int, n_rows: int) -> None:
        """Lets hypotheses continue others."""
        _check(self._functions.regard_decoder_reorder(writer, rows, n_rows))

    def keep(self, writer: int, sentences: int, n_sentences: int) -> None:
        """Goes on with some sentences only."""
        _check(self._functions.regard_decoder_keep(writer, sentences, n_sentences))


SIGNATURES = {
    "regard_has_fast_int8": (),
    "regard_model_new": (POINTER(Sizes), POINTER(c_void_p), POINTER(c_void_p)),
    "regard_model_free": (c_void_p,),
    "regard_decoder_new": (c_void_p, POINTER(Sentences), c_int64, c_int, POINTER(c_void_p)),
    "regard_decoder_free": (c_void_p,),
    "regard_decoder_step": (c_void_p, c_void_p, c_void_p, c_int, c_void_p),
    "regard_decoder_top_k": (c_void_p, c_void_p, c_void_p, POINTER(Choice), c_int, c_void_p, c_void_p),
    "regard_beam_search_new": (c_void_p, POINTER(Search), POINTER(c_void_p)),
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
    """Gives the compiled code, made now if need be; raises UnavailableError, with the reason, where there is none."""
    if os.environ.get(SWITCH) == "0":
        raise UnavailableError(f"{SWITCH} is 0")
    try:
        return Library(compiled(cache_folder()))
    except (CompileError, subprocess.SubprocessError) as error:
        raise UnavailableError(str(error)) from error
    except OSError:
        return _open_for_now()


def _open_for_now() -> Library:
    """Compiles for this process alone, where nothing can be kept."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            return Library(compiled(Path(folder)))
    except (CompileError, subprocess.SubprocessError, OSError) as error:
        raise UnavailableError(str(error)) from error


def _check(outcome: int) -> None:
    if outcome:
        error, text = OUTCOMES[outcome]
        raise error(text)


__all__ = ["Library", "UnavailableError", "open_library"]
