"""No answer tells where anything lies on the server's disk."""

import json
import sys
from pathlib import Path

import httpx
import pytest

import regard
from tests.serve.server import make_folder, new_shelf, running
from tests.serve.test_api import MISTAKES

PATHS = ("/", "/docs", "/docs.js", "/openapi.json", "/models", "/languages", "/health", "/metrics", "/positions")


@pytest.fixture(scope="module")
def broken(tmp_path_factory, home):
    """A server with a good model and one whose weights are broken."""
    folder = tmp_path_factory.mktemp("deep") / "inside"
    shelf = new_shelf([make_folder(folder, "tiny"), make_folder(folder, "broken")], home)
    (folder / "broken" / "model.safetensors").write_bytes(b"nothing")
    with running(shelf) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client, folder


def secrets(folder):
    """Lists the places that an answer might tell of."""
    places = (folder, folder.parent, Path(regard.__file__).parent, Path.cwd(), Path.home(), Path(sys.prefix))
    return [str(place) for place in places if len(place.parts) > 1] + ["site-packages", "Traceback", ".py"]


def said_by(client):
    """Asks for everything, good and bad."""
    for path in PATHS:
        yield client.get(path)
    for method, path, body, _, _ in MISTAKES:
        yield client.request(method, path, **body)
    yield client.post("/translate", json={"q": "bad cab", "source": "zh", "target": "en", "alternatives": 1})
    yield client.post("/translate/stream", json={"text": "bad cab", "model": "tiny"})
    for path, body in (
        ("/translate", {"q": "a", "target": "en", "model": "broken"}),
        ("/trace", {"text": "a", "model": "broken"}),
        ("/translate/stream", {"text": "a", "model": "broken"}),
    ):
        said = client.post(path, json=body)
        assert said.status_code == 500 and "server's log" in said.json()["error"]
        yield said
    view = client.post("/trace", json={"text": "bad cab", "model": "tiny"})
    yield view
    for rest in ("", "?node=999", "/head?kind=cross&layer=0&head=0", "/head?kind=x&layer=0&head=0", "/html"):
        yield client.get(f"/trace/{view.json()['id']}{rest}")


def test_no_answer_names_a_place_on_the_disk(broken):
    client, folder = broken
    n_answers = 0
    for said in said_by(client):
        whole = said.text + json.dumps(dict(said.headers))
        found = [secret for secret in secrets(folder) if secret in whole]
        assert not found, f"{said.request.method} {said.request.url}: {found} in {whole[:500]}"
        n_answers += 1
    assert n_answers > 50


def test_an_own_mistake_is_told_without_its_traceback(shelf, monkeypatch):
    """A bug of ours is answered with 500 and nothing about it."""
    from regard.serve import routes_lessons as learning

    def fail(*_):
        raise RuntimeError(f"secret at {Path.cwd()}")

    monkeypatch.setattr(learning, "positions_of", fail)
    with running(shelf) as url:
        said = httpx.get(f"{url}/positions", timeout=30)
        assert said.status_code == 500 and said.json() == {
            "error": "something went wrong here; the server's log says what"
        }
        assert httpx.get(f"{url}/health").status_code == 200
