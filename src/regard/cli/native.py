"""The command native, and what this machine runs models with: info --system."""

import os
import platform
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from rich.table import Table
from typer import Option

from regard import __version__
from regard.cli.options import Json
from regard.device import has_cuda
from regard.extras import is_installed
from regard.native import HERE, SWITCH, Library, SwitchedOffError, UnavailableError, n_threads, open_library
from regard.native.build import CompileError, build_here
from regard.native.libraries import LEVELS, MACHINE, cache_folder, prebuilt
from regard.terminal import QUIET, message, print_json, print_tables

BUILD = "Compile a library for just this machine, in a private folder; it is opened before the one of the package."


@dataclass(frozen=True)
class SystemReport:
    """What runs models here, and why nothing faster does."""

    version: str
    python: str
    machine: str
    engine: str
    instructions: str | None  # of the library that is opened
    processor: list[str]  # the sets of instructions that the processor has and that we build for, the least first
    built: list[str]  # those of which there is a library
    library: str | None
    threads: int
    gpu: str
    note: str  # why not a faster one


def native(build: Annotated[bool, Option("--build", help=BUILD)] = False, json_: Json = False) -> None:
    if build:
        try:
            path = build_here(cache_folder())
        except CompileError as error:
            raise ValueError(f"no library could be built: {error}") from error
        message(f"[dim]built {path}; removing it goes back to the library of the package[/]")
    show_system(json_)


def show_system(json_: bool) -> None:
    """Print what runs models on this machine."""
    report = report_system()
    print_json(report) if json_ else print_tables(system_table(report))


def report_system() -> SystemReport:
    """Open the library as a model would, and tell what was found."""
    machine, built = MACHINE, prebuilt()
    levels = list(LEVELS.get(machine, {}))
    processor = levels[: Library(next(iter(built.values()))).best_level() + 1] if built else []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what was left alone, find_library says when a model is opened
            library = open_library()
    except UnavailableError as error:
        engine = "PyTorch" if is_installed("torch") else "none"
        way_out = "unset it" if isinstance(error, SwitchedOffError) else "regard native --build compiles one"
        found, note = (engine, None, None), f"{error}: {way_out}"
    else:
        found = "C++", library.level, str(library.path)
        note = _note(library.level, processor, built.keys())
    gpu = "yes" if has_cuda() else "none was found" if is_installed("torch") else "not looked for: torch is missing"
    about = (__version__, platform.python_version(), machine)
    return SystemReport(*about, found[0], found[1], processor, list(built), found[2], n_threads(), gpu, note)


def _note(level: str, processor: list[str], built: Collection[str]) -> str:
    if level == HERE:
        return "compiled for just this machine"
    missing = [each for each in processor[processor.index(level) + 1 :] if each in built]
    if missing:
        return f"{SWITCH} is {os.environ.get(SWITCH, '')}, and {missing[-1]} would be faster"
    if level != processor[-1]:
        return f"this processor has {processor[-1]}, of which there is no library: regard native --build compiles one"
    return "the best that this processor has"


def system_table(report: SystemReport) -> Table:
    """List the report, a row for each part."""
    table = Table(title="System", show_header=False, **QUIET)
    table.add_column()
    table.add_column(overflow="fold")
    table.add_row("regard", f"{report.version}, Python {report.python}, {report.machine}")
    table.add_row("engine", report.engine)
    table.add_row("instructions", report.instructions or "–")
    table.add_row("processor has", ", ".join(report.processor) or "not known")
    table.add_row("built for", ", ".join(report.built) or "–")
    table.add_row("library", report.library or "–")
    table.add_row("threads", f"{report.threads} (OMP_NUM_THREADS sets another number)")
    table.add_row("GPU", report.gpu)
    table.add_row("note", report.note)
    return table
