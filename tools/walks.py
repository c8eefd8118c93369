"""Follow three main jobs through the package: `python tools/walks.py [translate|train|trace]`.

docs/architecture.md lists, for each job, the functions that hand the data on. A job runs here under a profiler: every
function of its list must be called, and the files of the list are counted. Besides, all files of the package that the
job touched are printed, leaves included; what runs when a module is imported is not part of a walk.
"""

import asyncio
import contextlib
import io
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

ROOT = Path(__file__).parent.parent
SOURCE, PAGE = ROOT / "src" / "regard", ROOT / "docs" / "architecture.md"
LIMITS = {"translate": 26, "train": 18, "trace": 26}
UNNAMED = {"<module>", "<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"}


@contextlib.contextmanager
def recorded(walk: dict[str, list[str]]) -> Iterator[None]:
    """Collect the functions that are called, by file."""
    importing = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib") and code.co_name == "_load_unlocked":
            importing += {"call": 1, "return": -1}.get(event, 0)
        if event != "call" or importing or not code.co_filename.startswith(str(SOURCE)):
            return
        if code.co_name not in UNNAMED:
            names = walk.setdefault(str(Path(code.co_filename).relative_to(SOURCE)), [])
            if code.co_qualname not in names:
                names.append(code.co_qualname)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def translate() -> dict[str, list[str]]:
    """From the arguments of `regard translate` to its output, on a CPU, with a bundled model."""
    from regard.cli import main

    walk: dict[str, list[str]] = {}
    sys.argv = ["regard", "translate", "介绍一下西安"]
    with contextlib.redirect_stdout(io.StringIO()), recorded(walk), contextlib.suppress(SystemExit):
        main()
    return walk


def train() -> dict[str, list[str]]:
    """Three training steps: batches are laid out, the weights change, the loss is logged."""
    from regard.config import Settings, parse_settings, preset
    from regard.train.trainer import train as run_training

    walk: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.tsv"
        text.write_text("".join(f"a b {n}\tb a {n}\n" for n in range(200)), encoding="utf-8")
        tables: dict[str, Any] = preset("tiny")
        tables["data"] = {"train": [str(text)], "valid_size": 10}
        tables["text"] |= {"kind": "characters"}
        tables["train"] |= {"max_steps": 3, "valid_every": 100, "log_every": 1}
        settings = parse_settings(Settings, tables)
        with _in_all_threads(walk), _recorded_from("regard.train.loop", "take_step", walk):
            run_training(settings, Path(folder) / "run", lambda progress: None)
    return walk


def trace() -> dict[str, list[str]]:
    """From `POST /trace` to the page's JSON, with the model loaded and traced once before."""
    from regard.serve.models import ModelRegistry
    from regard.serve.server import ServeSettings, make_app

    walk: dict[str, list[str]] = {}

    async def ask() -> None:
        app = make_app(ModelRegistry(), ServeSettings())
        transport = httpx.ASGITransport(app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
            for text in ("介绍一下西安", "我喜欢音乐。"):
                walk.clear()
                answer = await client.post("http://localhost/trace", json={"text": text, "model": "zh-en"})
                answer.raise_for_status()

    with _in_all_threads(walk):
        asyncio.run(ask())
    return walk


@contextlib.contextmanager
def _recorded_from(module: str, name: str, walk: dict[str, list[str]]) -> Iterator[None]:
    """Record from the last call of a function on."""
    home = sys.modules[module]
    plain: Callable[..., Any] = getattr(home, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        walk.clear()
        return plain(*args, **kwargs)

    setattr(home, name, call)
    try:
        yield
    finally:
        setattr(home, name, plain)


@contextlib.contextmanager
def _in_all_threads(walk: dict[str, list[str]]) -> Iterator[None]:
    """Record in threads that begin meanwhile too."""
    with recorded(walk):
        threading.setprofile(sys.getprofile())
        try:
            yield
        finally:
            threading.setprofile(None)  # pyright: ignore[reportArgumentType]


WALKS = {"translate": translate, "train": train, "trace": trace}


def listed(name: str) -> dict[str, list[str]]:
    """Return the functions of a walk as the documentation lists them, by file."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n### {name}\n")[1].split("\n#")[0]
    found: dict[str, list[str]] = {}
    for line in section.splitlines():
        if line.startswith("- `"):
            file, _, functions = line.removeprefix("- ").partition(": ")
            found.setdefault(file.strip("`"), []).extend(re.findall(r"`([^`]+)`", functions))
    return found


def missing(name: str, walk: dict[str, list[str]]) -> list[str]:
    """Return the listed functions that were not called."""
    return [f"{file}: {each}" for file, some in listed(name).items() for each in some if each not in walk.get(file, [])]


def main() -> None:
    for name in sys.argv[1:] or list(WALKS):
        walk = WALKS[name]()
        print(f"{name}: {len(listed(name))} files are listed (limit {LIMITS[name]}), {len(walk)} were touched")
        print(f"  listed and not called: {missing(name, walk) or 'none'}")
        for file, functions in walk.items():
            print(f"  {'*' if file in listed(name) else ' '} {file}: {', '.join(functions)}")


if __name__ == "__main__":
    main()
