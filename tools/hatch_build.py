"""The build of a package: makes the page that it contains, or ends where it cannot.

Hatchling calls it for sdists and wheels. An sdist holds the page, so that a wheel made from it needs no Node.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = Path("src", "regard", "serve", "page", "index.html")


class PageHook(BuildHookInterface):
    """Builds the page unless it is there and no source is newer."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page before files are collected; an editable installation takes it as it finds it."""
        root = Path(self.root)
        if version == "editable" or is_current(root):
            return
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit(
                f"{PAGE.parent}: the page must be built before it is packaged, and there is no npm to build it: "
                "run make page, or install Node 20.19 or newer"
            )
        for command in (("ci", "--no-audit", "--no-fund", "--loglevel=error"), ("run", "--silent", "build")):
            subprocess.run([npm, *command], cwd=root / "web", check=True)


def is_current(root: Path) -> bool:
    """Return whether the page is built, and newer than what it is built from."""
    page, sources = root / PAGE, root / "web"
    if not page.exists():
        return False
    files = (path for path in sources.rglob("*") if path.is_file() and "node_modules" not in path.parts)
    return all(path.stat().st_mtime <= page.stat().st_mtime for path in files)
