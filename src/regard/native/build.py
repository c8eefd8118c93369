"""The C++ library from its sources: one file for each set of instructions, or one for just this machine.

`python -m regard.native.build` needs no packages: it compiles what a wheel holds into `lib`, beside the sources.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from regard.native.libraries import (
    ALWAYS,
    FLAGS,
    LEVELS,
    LIBRARIES,
    MACHINE,
    PATIENCE,
    PORTABLE,
    SOURCES,
    library_name,
    library_paths,
    machine_key,
    make_private,
)


class CompileError(Exception):
    """There is no compiler, or it did not take the sources."""


def find_compiler() -> Path:
    """Return the C++ compiler: the one that CXX names, or the system's."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        found = shutil.which(name) if name else None
        if found:
            return Path(found).resolve()
    raise CompileError("no C++ compiler was found: c++, g++ or clang++")


def compile_sources(compiler: Path, flags: Sequence[str], target: Path) -> None:
    """Write one library; raise CompileError with what the compiler said."""
    command = [str(compiler), *ALWAYS, *flags, str(SOURCES / "bindings.cpp"), "-o", str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileError(str(error)) from error
    if done.returncode:
        raise CompileError(f"{compiler} did not compile the sources: {done.stderr.strip()[:500]}")


def build_levels() -> list[Path]:
    """Compile a library for each set of instructions that the compiler's machine may have; those of old sources go."""
    compiler = find_compiler()
    machine = target_machine(compiler)
    if machine not in LEVELS:
        raise CompileError(f"libraries are built for {' and '.join(LEVELS)}, got {machine}: run regard native --build")
    paths = library_paths(machine)
    (LIBRARIES / machine).mkdir(parents=True, exist_ok=True)

    def build(level: str) -> None:
        if not paths[level].exists():
            part = paths[level].with_suffix(f".{os.getpid()}")
            compile_sources(compiler, (*PORTABLE, *LEVELS[machine][level]), part)
            part.replace(paths[level])

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(build, paths))
    for path in set((LIBRARIES / machine).glob("*.so")) - set(paths.values()):
        path.unlink(missing_ok=True)
    return list(paths.values())


def target_machine(compiler: Path) -> str:
    """Return the kind of machine that a compiler compiles for."""
    said = subprocess.run([str(compiler), "-dumpmachine"], capture_output=True, text=True, check=False).stdout
    return said.split("-")[0].strip() or MACHINE


def platform_tag(paths: Sequence[Path], machine: str) -> str:
    """Return the tag of wheels that hold these libraries: the oldest glibc they work with, by the symbols they name."""
    names = {found for path in paths for found in re.findall(rb"GLIBC_2\.(\d+)", path.read_bytes())}
    if not names:
        return re.sub(r"[-.]", "_", sysconfig.get_platform())
    return f"manylinux_2_{max(map(int, names))}_{machine}"


def build_here(folder: Path, flags: Sequence[Sequence[str]] = FLAGS) -> Path:
    """Compile a library for just this machine into a folder: whole, or not at all."""
    compiler = find_compiler()
    make_private(folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as workshop:
        made = Path(workshop) / "regard.so"
        _compile_with_any(compiler, flags, made)
        made.chmod(0o700)
        target = folder / library_name(machine_key(), made.read_bytes())
        made.replace(target)
    for path in folder.glob("*.so"):
        if path != target:
            path.unlink(missing_ok=True)
    return target


def _compile_with_any(compiler: Path, flags: Sequence[Sequence[str]], target: Path) -> None:
    """Compile with the first flags that the compiler takes."""
    *some, last = flags
    for each in some:
        with suppress(CompileError):
            return compile_sources(compiler, each, target)
    return compile_sources(compiler, last, target)


if __name__ == "__main__":
    try:
        for made in build_levels():
            print(made.relative_to(Path.cwd()) if made.is_relative_to(Path.cwd()) else made)
    except CompileError as error:
        sys.exit(str(error))
