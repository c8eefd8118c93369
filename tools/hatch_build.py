"""The build of a package: makes the page and the C++ libraries that it contains, or ends where it cannot.

Hatchling calls it. An sdist holds the page and the C++ sources, so that a wheel made from it needs a C++ compiler and
no Node; a wheel holds the page, and the libraries of the machines that its tag names.
"""

import os
import platform
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = Path("src", "regard", "serve", "page", "index.html")
NATIVE = Path("src", "regard", "native")


class PackageHook(BuildHookInterface):
    """Builds the page and the libraries unless they are there and no source is newer."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before files are collected; an editable installation does without what cannot be built."""
        root = Path(self.root)
        if version == "editable":
            try:
                build_libraries(root)
            except SystemExit as error:
                self.app.display_warning(str(error))
            return
        build_page(root)
        if self.target_name == "wheel":
            libraries, tag = build_libraries(root)
            build_data["tag"] = f"py3-none-{tag}"
            build_data["pure_python"] = False
            build_data["force_include"].update({str(path): str(path.relative_to(root / "src")) for path in libraries})


def build_page(root: Path) -> None:
    """Build the page unless it is current; exit with one line where it cannot be built."""
    if is_current(root):
        return
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit(
            f"{PAGE.parent}: the page must be built before it is packaged, and there is no npm to build it: "
            "run make page, or install Node 20.19 or newer"
        )
    for command in (("ci", "--no-audit", "--no-fund", "--loglevel=error"), ("run", "--silent", "build")):
        if subprocess.run([npm, *command], cwd=root / "web", check=False).returncode:
            raise SystemExit(
                f"{PAGE.parent}: the page must be built before it is packaged, but npm {command[0]} failed"
            )


def is_current(root: Path) -> bool:
    """Return whether the page is built, and newer than what it is built from."""
    page, sources = root / PAGE, root / "web"
    if not page.exists():
        return False
    files = (path for path in sources.rglob("*") if path.is_file() and "node_modules" not in path.parts)
    return all(path.stat().st_mtime <= page.stat().st_mtime for path in files)


def build_libraries(root: Path) -> tuple[list[Path], str]:
    """Return the C++ libraries of a wheel and its platform tag; exit with one line where they cannot be built.

    They are for the machine that the compiler compiles for, so a cross compiler in CXX makes a wheel for another.
    """
    sys.path.insert(0, str(root / "src"))  # these two modules need no package
    build, kept = import_module("regard.native.build"), import_module("regard.native.libraries")
    named, machine = os.environ.get("CXX"), platform.machine()
    if sys.platform != "linux" or (machine not in kept.LEVELS and not named):
        return [], build.platform_tag([], machine)  # its users compile for just their machine, or have PyTorch decode
    try:
        if named and shutil.which(named) is None:
            raise build.CompileError(f"CXX must name a compiler, got {named!r}")
        libraries = build.build_levels()
    except build.CompileError as error:
        libraries = list(kept.prebuilt().values())
        if named or len(libraries) < len(kept.LEVELS[machine]):
            reason = "the C++ libraries must be built before they are packaged"
            raise SystemExit(f"{NATIVE}: {reason}, but {error}: install g++, or name a compiler by CXX") from error
    return libraries, build.platform_tag(libraries, libraries[0].parent.name)
