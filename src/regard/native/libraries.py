"""Where compiled libraries lie, and which of them may be opened: those of the package, and one of just this machine.

Nothing here needs another package, or the modules of Python that only compiling needs.
"""

import os
import stat
import sys
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree

SOURCES = Path(__file__).parent
LIBRARIES = SOURCES / "lib"
ALWAYS = ("-std=c++17", "-O3", "-shared", "-fPIC", "-ffp-contract=off", "-pthread")
# What is installed elsewhere brings its own C++ library, and shows no more names than Python calls.
PORTABLE = ("-fvisibility=hidden", "-ffunction-sections", "-fno-gnu-unique", "-static-libstdc++", "-shared-libgcc")
PORTABLE += ("-s", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL", "-Wl,-Bsymbolic")
AVX2 = ("-mavx2", "-mfma")
AVX512 = (*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl")
# In the order in which `regard_best_level` of bindings.cpp counts them.
LEVELS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"x86-64": (), "avx2": AVX2, "avx512": AVX512, "avx512vnni": (*AVX512, "-mavx512vnni")},
    "aarch64": {"neon": (), "dotprod": ("-march=armv8.2-a+dotprod",)},
}
# The first that the compiler knows are taken: some call the machine's own code by another name.
FLAGS = (("-march=native",), ("-mcpu=native",), ())
MACHINE = os.uname().machine if hasattr(os, "uname") else "x86_64"  # as `platform.machine` has it, 2 ms sooner
PATIENCE = 120  # seconds for one attempt; six are usual
USER = os.geteuid() if hasattr(os, "geteuid") else 0  # as `stat` has it where there are no users


class ForeignFolderError(OSError):
    """A cache is a folder of somebody else, whose code must not run here."""


def sources_key() -> str:
    """Return a key that changes with the sources."""
    digest = blake2b(repr((ALWAYS, PORTABLE, LEVELS)).encode(), digest_size=6)
    for path in sorted([*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp")]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def prebuilt(machine: str = MACHINE) -> dict[str, Path]:
    """Return the libraries of these very sources that were built for a kind of machine, by level, the least first."""
    return {level: path for level, path in library_paths(machine).items() if path.exists()}


def library_paths(machine: str) -> dict[str, Path]:
    """Return where a library of each level lies, once it is built."""
    key = sources_key()
    return {level: LIBRARIES / machine / f"{level}-{key}.so" for level in LEVELS.get(machine, {})}


def built_here(folder: Path) -> Path | None:
    """Return what `build_here` made of these sources on this machine, if it is there and nobody else could change it.

    A file that is damaged or that others could write to is removed: it may crash whoever loads it, or do anything.
    """
    if not folder.exists():
        return None
    make_private(folder)
    key = machine_key()
    for path in folder.glob(f"{key}-*.so"):
        if is_private(path) and path.name == library_name(key, path.read_bytes()):
            return path
        path.unlink(missing_ok=True)
    return None


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
                rmtree(left, ignore_errors=True)


def is_private(path: Path) -> bool:
    """Tell whether a file is of this user, and nobody else could have written it."""
    about = path.lstat()
    return stat.S_ISREG(about.st_mode) and about.st_uid == USER and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def cache_folder() -> Path:
    """Return the folder in which this user keeps a library of just this machine; raise OSError without a home."""
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(given) if given else Path.home() / ".cache") / "regard"
    except RuntimeError as error:
        raise OSError("there is no home folder to keep it in: set HOME or XDG_CACHE_HOME") from error


def machine_key() -> str:
    """Return a key that changes with the sources and with the processor, since the library uses its instructions."""
    digest = blake2b(sources_key().encode(), digest_size=8)
    digest.update(repr((sys.platform, MACHINE)).encode())
    info = Path("/proc/cpuinfo")
    if info.exists():
        first, *_ = info.read_text(encoding="utf-8", errors="replace").split("\n\n")  # the other cores are alike
        told = ("model name", "flags", "Features", "CPU part")
        digest.update("\n".join(line for line in first.splitlines() if line.startswith(told)).encode())
    return digest.hexdigest()


def library_name(key: str, content: bytes) -> str:
    """Return a file name that tells whether the content is whole."""
    return f"{key}-{blake2b(content, digest_size=8).hexdigest()}.so"
