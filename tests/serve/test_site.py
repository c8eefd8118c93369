"""The built page, the page that is saved, and the page about the API."""

import json
import re
from pathlib import Path

import httpx
import pytest

from regard.serve import ServeSettings, serialize
from regard.serve.schema_trace import Saved
from regard.serve.serialize import json_for_html, make_view, render_html, save_html
from tests.serve.server import running
from tests.trace.makers import make_model, one_trace

PUBLIC = Path(__file__).parents[2] / "web" / "public"
OUTSIDE = re.compile(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""")


@pytest.fixture
def built(tmp_path):
    """A page as the front end builds it."""
    page = tmp_path / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text('<!doctype html><script type="module" src="/assets/a-1.js"></script>', "utf-8")
    (page / "assets" / "a-1.js").write_text("export {}", "utf-8")
    (page / "favicon.svg").write_text("<svg/>", "utf-8")
    (page / "notes.secret").write_text("no", "utf-8")
    (page / "view.html").write_text("<!doctype html><main></main><!--regard-view--><p>after</p>", "utf-8")
    (tmp_path / "secret.json").write_text("{}", "utf-8")
    return page


@pytest.fixture
def served(models, built):
    with running(models, ServeSettings(), built) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client


def test_files_of_the_page_are_served_with_types_and_caching(served):
    index, script = served.get("/"), served.get("/assets/a-1.js")
    assert index.headers["content-type"] == "text/html; charset=utf-8" and index.headers["cache-control"] == "no-cache"
    assert (
        script.headers["content-type"].startswith("text/javascript") and "immutable" in script.headers["cache-control"]
    )
    assert served.get("/favicon.svg").headers["content-type"] == "image/svg+xml"
    assert served.head("/").status_code == 200
    again = served.get("/", headers={"If-None-Match": index.headers["etag"]})
    assert again.status_code == 304 and again.content == b""


@pytest.mark.parametrize(
    "path",
    [
        "/assets/none.js",
        "/notes.secret",
        "/assets/..%2f..%2fsecret.json",
        "/..%2fsecret.json",
        "/assets/%2e%2e/notes.secret",
    ],
)
def test_nothing_else_is_served(served, path):
    response = served.get(path)
    assert response.status_code == 404 and list(response.json()) == ["error"]


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_without_a_built_page_the_error_says_how_to_build_it(models, tmp_path, path):
    with running(models, ServeSettings(), tmp_path) as url:
        response = httpx.get(url + path)
    assert response.status_code == 503 and "make page" in response.text and str(tmp_path) not in response.text
    assert "/openapi.json" in response.text


@pytest.fixture
def trace():
    return one_trace(make_model(), "bad cab")


def data_of(page):
    """Gives the data inside a saved page, as a browser finds it."""
    return json.loads(re.search(r'<script type="application/json" id="regard-view">(.*?)</script>', page, re.S)[1])


def test_a_saved_page_holds_the_view_and_its_heads(trace, built, tmp_path, monkeypatch):
    monkeypatch.setattr(serialize, "PAGE", built)
    save_html(trace, tmp_path / "x.html", "tiny")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    response = data_of(page)
    assert page.startswith("<!doctype html>") and page.endswith("<p>after</p>")
    assert response["views"][0]["output"] == trace.output and response["views"][0]["id"] is None
    assert len(response["heads"]) == sum(look.n_heads for look in trace.attention)


def test_no_text_can_break_out_of_the_data(trace, monkeypatch, built):
    nasty = "</script><script>alert(1)</script><!-- \u2028"
    saved = Saved([make_view(trace, nasty)], [])
    assert "<" not in json_for_html(saved) and "\u2028" not in json_for_html(saved)
    assert json.loads(json_for_html(saved))["views"][0]["model"] == nasty
    monkeypatch.setattr(serialize, "PAGE", built)
    assert data_of(render_html(trace, nasty))["views"][0]["model"] == nasty


def test_many_numbers_stay_out_of_a_file(trace, monkeypatch, built):
    monkeypatch.setattr(serialize, "PAGE", built)
    monkeypatch.setattr(serialize, "MAX_NUMBERS", 10)
    assert data_of(render_html(trace))["heads"] == []


def test_without_a_built_page_nothing_is_saved(trace, tmp_path, monkeypatch):
    monkeypatch.setattr(serialize, "PAGE", tmp_path)
    with pytest.raises(ValueError, match=r"x\.html.*not built"):
        save_html(trace, tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


def test_a_cached_trace_is_returned_as_a_file(served, monkeypatch, built):
    monkeypatch.setattr(serialize, "PAGE", built)
    view = served.post("/trace", json={"text": "bad cab", "model": "tiny"}).json()
    response = served.get(f"/trace/{view['id']}/html")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "attachment" in response.headers["content-disposition"]
    assert data_of(response.text)["views"][0]["tree"] == view["tree"]


def test_the_api_reference_is_a_file_of_the_page(served, built):
    (built / "docs.html").write_text("<!doctype html><title>Regard API</title>", "utf-8")
    reference = served.get("/docs")
    assert reference.text == (built / "docs.html").read_text("utf-8")
    assert reference.headers["content-type"] == "text/html; charset=utf-8"
    assert reference.headers["cache-control"] == "no-cache" and served.head("/docs").status_code == 200
    for path in ("/redoc", "/docs/oauth2-redirect"):
        assert served.get(path).status_code == 404


@pytest.mark.parametrize("name", ["docs.html", "docs.js"])
def test_the_api_reference_needs_nothing_from_outside(name):
    assert not OUTSIDE.search((PUBLIC / name).read_text("utf-8"))
