"""The benchmark suites: the script of each, its arguments, and what it requires."""

import ast
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from regard.config import choose
from regard.zoo import present

SCRIPTS = Path(__file__).parent
EXTRAS = {"bertviz": "test", "playwright": "test", "fastapi": "serve", "uvicorn": "serve", "transformers": "bench"}


@dataclass(frozen=True)
class Suite:
    """One script on one device, which writes its results to `NAME-DEVICE.json`."""

    name: str
    device: str
    script: str
    args: tuple[str, ...] = ()
    quick_args: tuple[str, ...] = ()  # added for a quick run
    modules: tuple[str, ...] = ()
    programs: tuple[tuple[str, ...], ...] = ()  # one of each group is enough
    model: str | None = None
    out_is_file: bool = False  # the script takes the file of its results, not their folder

    @property
    def result_file(self) -> str:
        return f"{self.name}-{self.device}.json"

    def command_line(self, quick: bool, folder: Path) -> list[str]:
        """Return the arguments with which the script writes its results to the folder."""
        out = ("--out", str(folder / self.result_file)) if self.out_is_file else ("--results", str(folder))
        return [*self.args, *(self.quick_args if quick else ()), *out]


def _cpu(name: str, quick: str, **needs: object) -> Suite:
    return Suite(name, "cpu", f"{name}.py", (), tuple(quick.split()), **needs)  # pyright: ignore[reportArgumentType]


CUDA = ("--device", "cuda")
SUITES = (
    Suite("attention", "cuda", "attention.py", CUDA, ("--quick",)),
    _cpu("attention", "--quick"),
    Suite("growth", "cuda", "growth.py", CUDA, ("--lengths", "64", "128", "256", "--batches", "1", "2", "4")),
    _cpu("growth", "--lengths 64 128 256 --batches 1 2 4 --seconds 0.05"),
    Suite("kernels", "cuda", "kernels.py", (), ("--seconds", "0.3"), modules=("triton",), out_is_file=True),
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
    """Return the named suites of a device, or all of them if none is named."""
    known = {suite.name: suite for suite in SUITES if suite.device == device}
    return [choose(known, name, f"suite for {device}") for name in dict.fromkeys(names or known)]


def unmet_requirement(suite: Suite, scripts: Path) -> str | None:
    """Return why a suite cannot run on this machine and how to change that, or None if it can."""
    if not (scripts / suite.script).is_file():
        return f"{suite.script} is missing from {scripts.name}/"
    for name in suite.modules:
        if find_spec(name) is None:
            extra = f": pip install -e '.[{EXTRAS[name]}]'" if name in EXTRAS else ""
            return f"{name} is not installed{extra}"
    for group in suite.programs:
        if not any(shutil.which(name) for name in group):
            return f"{' or '.join(group)} is not installed"
    if suite.model is not None and suite.model not in present():
        return f"the model {suite.model} is not bundled with this copy"
    return None


def docstring_paragraphs(script: Path) -> list[str]:
    """Return the paragraphs of a script's docstring: its question first, then how it measures."""
    if not script.is_file():
        return []
    text = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
