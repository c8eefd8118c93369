"""C++ sources become a shared library: once for each machine, compiler and version of the sources."""

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
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
        command = [str(compiler), *ALWAYS, *some, str(SOURCES / "regard.cpp"), "-o", str(target)]
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
