"""A server with the bundled models, Chromium, and pages that must not fail nor contact another server."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from regard.qa.data import WindowSettings
from regard.qa.model import save_reader
from regard.serve import PAGE
from tests.readers import small_reader
from tests.serve.planted import plant_study, plant_writer

ROOT = Path(__file__).parent.parent.parent
PICTURES = ROOT / "demo" / "screenshots"
NARROW, WIDE = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
LOCAL = {"127.0.0.1", "localhost", "::1"}
WIDE_WINDOWS = WindowSettings(size=120, stride=40, question=20, longest=8)
FLAGS = ["--no-sandbox", "--disable-background-networking"]


@pytest.fixture(scope="session")
def url(tmp_path_factory) -> Iterator[str]:
    """A server as users start it, with a study, a question answering model and a generator."""
    folder = tmp_path_factory.mktemp("made")
    study = plant_study(folder / "ablation")
    save_reader(folder / "reader", small_reader(windows=WIDE_WINDOWS), {})
    assert (PAGE / "view.html").is_file(), "the page is not built: make page"
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "regard", "serve", "--port", "0", "--study", str(study)]
    writer = plant_writer(folder / "writer")
    command += ["--reader", str(folder / "reader"), "--writer", str(writer)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as run:
        assert run.stdout is not None
        output = ""
        for line in run.stdout:
            output += line
            if url := re.search(r"http://\S+", line):
                yield url[0] + "/"
                break
        else:
            pytest.fail(f"the server did not start: {output}")
        run.terminate()


@pytest.fixture(scope="session")
def api(url) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=180) as client:
        yield client


@pytest.fixture(scope="module")
def chromium():
    """A browser for one file of tests: while it is open, other tests cannot run an event loop."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="browser tests need Playwright: pip install playwright"
    )
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("BROWSER TESTS DID NOT RUN: there is no Chromium; on Debian and Ubuntu: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Visits:
    """Opens pages and records what goes wrong on them."""

    def __init__(self, browser, url: str):
        self.browser = browser
        self.url = url
        self.errors: list[str] = []
        self.contexts = []

    def __call__(self, fragment: str = "", **options):
        """Open a view by its URL fragment."""
        return self.open(self.url + ("#" + fragment if fragment else ""), **options)

    def open(self, url: str, dark: bool = False, locale: str = "en-US", narrow: bool = False, density: float = 1):
        """Open any URL."""
        page = self.context(dark, locale, narrow, density).new_page()
        page.goto(url)
        settle(page)
        return page

    def context(self, dark: bool = False, locale: str = "en-US", narrow: bool = False, density: float = 1):
        """Open a browser window whose pages are monitored."""
        context = self.browser.new_context(
            viewport=NARROW if narrow else WIDE,
            color_scheme="dark" if dark else "light",
            locale=locale,
            device_scale_factor=density,
            reduced_motion="reduce",
        )
        context.set_default_timeout(180_000)  # a busy machine is slow, and no test waits for what does not come
        context.route("**/*", self._route)
        context.on("weberror", lambda error: self.errors.append(f"error {error.error}"))
        context.on("console", self._log)
        self.contexts.append(context)
        return context

    def _route(self, route) -> None:
        target = urlsplit(route.request.url)
        if target.scheme in {"data", "blob", "file"} or target.hostname in LOCAL:
            route.continue_()
        else:
            self.errors.append(f"a request left the machine: {route.request.url}")
            route.abort()

    def _log(self, message) -> None:
        from_tests = "getImageData" in message.text  # not by the page
        if message.type in {"error", "warning"} and not from_tests:
            self.errors.append(f"console {message.type}: {message.text}")


def settle(page) -> None:
    """Wait until the page has its data."""
    page.wait_for_selector("main .card", state="attached")
    page.wait_for_function("() => !document.querySelector('[role=status]').textContent.trim()")


def expect(target):
    """Return Playwright's assertions on a page or a locator, which wait."""
    from playwright.sync_api import expect as playwright_expect

    playwright_expect.set_options(timeout=180_000)
    return playwright_expect(target)


def expect_url(page, *parts: str) -> None:
    """Wait until the page's URL contains all parts."""
    for part in parts:
        expect(page).to_have_url(re.compile(re.escape(part)))


@pytest.fixture
def visit(chromium, url) -> Iterator[Visits]:
    visits = Visits(chromium, url)
    yield visits
    for context in visits.contexts:
        context.close()
    assert not visits.errors, visits.errors


@pytest.fixture
def picture():
    """Save a screenshot of a page."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    return lambda page, name: page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


@pytest.fixture
def xian(api) -> dict:
    """The trace of the page's example, a new one for each test: the server keeps only the latest traces."""
    return api.post("/trace", json={"text": "介绍一下西安", "beam": 5}).json()
