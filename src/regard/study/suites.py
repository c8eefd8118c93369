"""The suites that set us beside others: which script each is, how it is called, and what it needs."""

import ast
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import regard
from regard.config import choose
from regard.zoo import present

HERE = Path(regard.__file__).parents[2] / "benchmarks"  # where the package runs from its source tree
GET_THEM = (
    "the suites are not part of the installed package: clone the repository, run pip install -e '.[bench]' in it, "
    "and call regard bench from there"
)
EXTRA = {"bertviz": "test", "playwright": "test", "fastapi": "serve", "uvicorn": "serve", "transformers": "bench"}


@dataclass(frozen=True)
class Suite:
    """One script for one device; its results lie in `NAME-DEVICE.json`."""

    name: str
    device: str
    script: str
    usual: tuple[str, ...] = ()  # what it is always called with
    quick: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    programs: tuple[tuple[str, ...], ...] = ()  # of each group one is enough
    model: str | None = None
    names_file: bool = False  # it is told the file of its results, and not their folder

    @property
    def result(self) -> str:
        """Names the file of its results."""
        return f"{self.name}-{self.device}.json"

    def arguments(self, quick: bool, folder: Path) -> list[str]:
        """Gives what the script is called with."""
        kept = ("--out", str(folder / self.result)) if self.names_file else ("--results", str(folder))
        return [*self.usual, *(self.quick if quick else ()), *kept]


def _cpu(name: str, quick: str, **needs: object) -> Suite:
    return Suite(name, "cpu", f"{name}.py", (), tuple(quick.split()), **needs)  # pyright: ignore[reportArgumentType]


CUDA = ("--device", "cuda")
SUITES = (
    Suite("attention", "cuda", "attention.py", CUDA, ("--quick",)),
    _cpu("attention", "--quick"),
    Suite("growth", "cuda", "growth.py", CUDA, ("--lengths", "64", "128", "256", "--batches", "1", "2", "4")),
    _cpu("growth", "--lengths 64 128 256 --batches 1 2 4 --seconds 0.05"),
    Suite("kernels", "cuda", "kernels.py", (), ("--seconds", "0.3"), modules=("triton",), names_file=True),
    Suite("decode", "cuda", "decode_gpu.py", (), ("--seconds", "1"), modules=("transformers",)),
    _cpu("decode", "--shapes small --batches 1 --beams 1 --threads 1 --seconds 0.5 --rounds 2"),
    Suite("train", "cuda", "train.py", CUDA, ("--quick",)),
    _cpu("train", "--quick"),
    _cpu("write", "--shapes small --seconds 0.5"),
    Suite("serve", "cuda", "serve.py", CUDA, ("--quick",), modules=("fastapi", "uvicorn"), model="zh-en"),
    _cpu("serve", "--quick", modules=("fastapi", "uvicorn"), model="zh-en"),
    _cpu(
        "view",
        "--tokens 20 --repeats 2",
        modules=("bertviz", "playwright"),
        programs=(("chromium", "google-chrome"),),
    ),
    _cpu("trace", "--shape tiny --tokens 20 --long 50 --seconds 0.5", model="zh-en"),
)


def choose_suites(names: Sequence[str], device: str) -> list[Suite]:
    """Gives the named suites of a device, all of them where none is named."""
    known = {suite.name: suite for suite in SUITES if suite.device == device}
    return [choose(known, name, f"suite for {device}") for name in dict.fromkeys(names or known)]


def find_scripts(places: Sequence[Path] | None = None) -> Path | None:
    """Gives the folder of the suites: that of the source tree, or one where the user stands."""
    found = places if places is not None else (HERE, Path.cwd() / "benchmarks")
    return next((place for place in found if (place / "measure.py").is_file()), None)


def lacking(suite: Suite, scripts: Path) -> str | None:
    """Says why a suite cannot run here, and what helps; None where it can."""
    if not (scripts / suite.script).is_file():
        return f"{suite.script} is not among the suites of this copy"
    for name in suite.modules:
        if find_spec(name) is None:
            extra = f": pip install -e '.[{EXTRA[name]}]'" if name in EXTRA else ""
            return f"{name} is not installed{extra}"
    for group in suite.programs:
        if not any(shutil.which(name) for name in group):
            return f"there is no {' or '.join(group)} here"
    if suite.model is not None and suite.model not in present():
        return f"the model {suite.model} does not come with this copy"
    return None


def told(script: Path) -> list[str]:
    """Gives what a script says about itself: its question, then how it is measured, a paragraph each."""
    if not script.is_file():
        return []
    text = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
