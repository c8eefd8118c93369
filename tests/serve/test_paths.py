"""No response reveals a path on the server's disk."""

import json
import sys
from pathlib import Path

import httpx
import pytest

import regard
from tests.serve.server import make_folder, make_registry, running
from tests.serve.test_api import ERRORS

PATHS = ("/", "/docs", "/docs.js", "/openapi.json", "/models", "/languages", "/health", "/metrics", "/positions")


@pytest.fixture(scope="module")
def broken(tmp_path_factory, home):
    """A server with a good model and one whose weights are broken."""
    folder = tmp_path_factory.mktemp("deep") / "inside"
    models = make_registry([make_folder(folder, "tiny"), make_folder(folder, "broken")], home)
    (folder / "broken" / "model.safetensors").write_bytes(b"nothing")
    with running(models) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client, folder


def secrets(folder):
    """List what no response may contain."""
    places = (folder, folder.parent, Path(regard.__file__).parent, Path.cwd(), Path.home(), Path(sys.prefix))
    return [str(place) for place in places if len(place.parts) > 1] + ["site-packages", "Traceback", ".py"]


def responses_of(client):
    """Send all kinds of requests, good and bad."""
    for path in PATHS:
        yield client.get(path)
    for method, path, body, _, _ in ERRORS:
        yield client.request(method, path, **body)
    yield client.post("/translate", json={"q": "bad cab", "source": "zh", "target": "en", "alternatives": 1})
    yield client.post("/translate/stream", json={"text": "bad cab", "model": "tiny"})
    for path, body in (
        ("/translate", {"q": "a", "target": "en", "model": "broken"}),
        ("/trace", {"text": "a", "model": "broken"}),
        ("/translate/stream", {"text": "a", "model": "broken"}),
    ):
        response = client.post(path, json=body)
        assert response.status_code == 500 and "server's log" in response.json()["error"]
        yield response
    view = client.post("/trace", json={"text": "bad cab", "model": "tiny"})
    yield view
    for rest in ("", "?node=999", "/head?kind=cross&layer=0&head=0", "/head?kind=x&layer=0&head=0", "/html"):
        yield client.get(f"/trace/{view.json()['id']}{rest}")


def test_no_response_contains_a_path(broken):
    client, folder = broken
    n_responses = 0
    for response in responses_of(client):
        whole = response.text + json.dumps(dict(response.headers))
        found = [secret for secret in secrets(folder) if secret in whole]
        assert not found, f"{response.request.method} {response.request.url}: {found} in {whole[:500]}"
        n_responses += 1
    assert n_responses > 50


def test_an_internal_error_is_reported_without_its_traceback(models, monkeypatch):
    from regard.serve import pytorch

    def fail(*_):
        raise RuntimeError(f"secret at {Path.cwd()}")

    monkeypatch.setattr(pytorch, "position_lesson", fail)
    with running(models) as url:
        response = httpx.get(f"{url}/positions", timeout=30)
        assert response.status_code == 500 and response.json() == {
            "error": "internal server error; see the server's log"
        }
        assert httpx.get(f"{url}/health").status_code == 200
