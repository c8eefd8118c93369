"""How large is the view of one run as a file, how long does it take to make, and how soon does a browser draw it?

6 layers × 8 heads, encoder, decoder and cross-attention, of a model with random weights, compared with BertViz on the
same weights.

Ceiling: 144 heads of n × n weights are 13 million at 300 tokens. One byte each in base64 makes 17 MB, so a smaller file
needs compression; all weights must be computed, and a browser must read them before it draws.

BertViz's files load their libraries from a CDN and draw nothing without it; here they are served from the same machine,
by npm, and where there is no npm they are not drawn.
"""

import argparse
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from bertviz import head_view, model_view
from measure import keep
from playwright.sync_api import Browser, Route, sync_playwright
from playwright.sync_api import Error as BrowserError
from rich.console import Console
from rich.table import Table

from regard.build import build_model
from regard.config import ModelSettings, parse_settings, preset
from regard.padding import EOS
from regard.serve.serialize import save_html
from regard.study.repeats import signature
from regard.trace import Trace
from regard.trace.external import trace_from_attention
from regard.trace.replay import replay

LIBRARIES = {
    "require.js": ("requirejs@2.3.6", "requirejs/require.js"),
    "d3": ("d3@5.7.0", "d3/dist/d3.min.js"),
    "jquery": ("jquery@2.1.4", "jquery/dist/jquery.min.js"),
}
VOCABULARY = 8000
MOST = 120_000  # milliseconds that a browser has
# What is there when a viewer has drawn: by the last part of the address, and the element.
PAINTED = "canvas[data-painted]"
PICTURES = {
    "regard, all heads": ("#view=attention&form=all&kind=encoder&unit=piece", PAINTED),
    "regard, lines": ("#view=attention&form=lines&kind=encoder&unit=piece", "g.lines line"),
    "regard, words": ("", "g.target"),
    "bertviz, model_view": ("", "#vis svg line"),
    "bertviz, head_view": ("", "#vis svg line"),
}


def make() -> Any:
    """Makes the paper's base model with random weights."""
    torch.manual_seed(0)
    sizes = parse_settings(ModelSettings, {"tie": "target", **preset("base").get("model", {})})
    return build_model(sizes, (VOCABULARY, VOCABULARY)).eval()


def run(model: Any, n: int) -> Trace:
    """Looks at n random tokens on either side."""
    source, said = torch.randint(4, VOCABULARY, (2, n - 1), generator=torch.Generator().manual_seed(0)).tolist()
    names = [f"▁{place}" for place in range(n)]
    return trace_from_attention(replay(model, source, [*said, EOS]).attention, names, names)


def write_bertviz(view: Callable[..., Any], trace: Trace, target: Path) -> None:
    """Writes what BertViz makes of the same weights."""
    made = view(**trace.to_hf().bertviz(), html_action="return")
    target.write_text(made.data, encoding="utf-8")


WRITERS: dict[str, Callable[[Trace, Path], None]] = {
    "regard": save_html,
    "bertviz, model_view": lambda trace, target: write_bertviz(model_view, trace, target),
    "bertviz, head_view": lambda trace, target: write_bertviz(head_view, trace, target),
}


def repeated(call: Callable[[], float], repeats: int, most: float = 30.0) -> list[float]:
    """Repeats what gives seconds, less often where it takes long."""
    taken = [call()]
    while len(taken) < repeats and sum(taken) < most:
        taken.append(call())
    return taken


def clocked(call: Callable[[], Any]) -> float:
    """Gives the seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@contextmanager
def libraries() -> Iterator[dict[str, Path]]:
    """Gives the files that BertViz asks a CDN for, or none where npm is not there."""
    npm = shutil.which("npm")
    with TemporaryDirectory() as folder:
        if npm is None:
            yield {}
            return
        names = [name for name, _ in LIBRARIES.values()]
        subprocess.run([npm, "install", "--no-save", "--silent", *names], cwd=folder, check=True, capture_output=True)
        yield {key: Path(folder) / "node_modules" / file for key, (_, file) in LIBRARIES.items()}


def first_picture(browser: Browser, file: Path, viewer: str, known: dict[str, Path]) -> float | None:
    """Gives the seconds from opening a file to its first picture; None where there is none."""
    where, element = PICTURES[viewer]
    page = browser.new_page()

    def answer(route: Route) -> None:
        found = next((known[key] for key in known if f"/{key}/" in route.request.url), None)
        if route.request.url.startswith("file:"):
            route.continue_()
        elif found is None:
            route.abort()
        else:
            route.fulfill(path=found, content_type="text/javascript")

    page.route("**/*", answer)
    start = time.perf_counter()
    try:
        page.goto(file.as_uri() + where, wait_until="commit", timeout=MOST)
        page.wait_for_selector(element, state="attached", timeout=MOST)
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return time.perf_counter() - start
    except BrowserError:
        return None
    finally:
        page.close()


def measure(trace: Trace, browser: Browser, folder: Path, repeats: int, known: dict[str, Path]) -> Iterator[dict]:
    """Writes and opens one run with each viewer."""
    for writer, write in WRITERS.items():
        target = folder / "view.html"
        make_times = repeated(lambda: clocked(lambda: write(trace, target)), repeats)  # noqa: B023
        for viewer in (name for name in PICTURES if name.startswith(writer)):
            drawn = [first_picture(browser, target, viewer, known)]
            while drawn[-1] is not None and len(drawn) < repeats and sum(filter(None, drawn)) < 30:
                drawn.append(first_picture(browser, target, viewer, known))
            seen = [each for each in drawn if each is not None]
            yield {
                "viewer": viewer,
                "bytes": target.stat().st_size,
                "make_seconds": statistics.median(make_times),
                "make_all": make_times,
                "draw_seconds": statistics.median(seen) if seen else None,
                "draw_all": seen,
            }
        target.unlink()


def table(rows: list[dict]) -> Table:
    """Lists the medians."""
    made = Table(title="6 × 8 heads, encoder + decoder + cross")
    for column in ("tokens", "viewer", "MB", "made in s", "first picture after s"):
        made.add_column(column, justify="left" if column == "viewer" else "right")
    for row in rows:
        draw = "none" if row["draw_seconds"] is None else f"{row['draw_seconds']:.2f}"
        made.add_row(
            str(row["tokens"]), row["viewer"], f"{row['bytes'] / 1e6:,.2f}", f"{row['make_seconds']:.2f}", draw
        )
    return made


def main() -> None:
    """Runs all lengths and keeps the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[20, 100, 300])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model, rows = make(), []
    with TemporaryDirectory() as folder, libraries() as known, sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        version = browser.version
        for n in given.tokens:
            for row in measure(run(model, n), browser, Path(folder), given.repeats, known):
                rows.append({"tokens": n, **row})
                print(f"{n} tokens, {row['viewer']}: done", flush=True)
        browser.close()
    Console(width=120).print(table(rows))
    keep("view-cpu", {"signature": signature("cpu", seed=0, browser=version), "rows": rows}, given.results)


if __name__ == "__main__":
    main()
