"""The server as `regard serve` starts it, over HTTP."""

import json
import subprocess
import sys
import zlib
from base64 import b64decode

import httpx
import pytest

START = "import sys, tests.no_torch; sys.argv = {argv}; from regard.cli import main; main()"
EXTRA = "needs torch, which is not installed: pip install 'regard[train]'"


@pytest.fixture(scope="module")
def client():
    """A client of a server in a process of its own, on any free port."""
    argv = ["regard", "serve", "--port", "0"]
    command = [sys.executable, "-c", START.format(argv=argv)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        line = server.stderr.readline()
        try:
            assert "Regard is at" in line, line + server.stderr.read()
            with httpx.Client(base_url=line.split()[3], timeout=30) as client:
                yield client
        finally:
            server.terminate()
            server.stderr.read()


def test_texts_are_translated_in_libretranslates_form(client):
    one = client.post("/translate", json={"q": "我喜欢音乐。", "source": "zh", "target": "en"})
    assert one.json() == {"translatedText": "I like music."}
    body = {"q": ["我喜欢音乐。", "他是我的朋友。"], "target": "en", "alternatives": 2}
    several = client.post("/translate", json=body).json()
    assert several["translatedText"] == ["I like music.", "He is my friend."]
    assert [len(each) for each in several["alternatives"]] == [2, 2]
    assert [each["language"] for each in several["detectedLanguage"]] == ["zh", "zh"]
    html = client.post("/translate", data={"q": "<p>我喜欢音乐。</p>", "target": "en", "format": "html"}).json()
    assert html["translatedText"] == "<p>I like music.</p>"
    assert client.post("/detect", json={"q": "你好"}).json()[0]["language"] == "zh"


def test_a_translation_is_streamed_and_has_a_trace(client):
    response = client.post("/translate/stream", json={"text": "我喜欢音乐。", "model": "zh-en"})
    found = [json.loads(line) for line in response.text.splitlines()]
    assert len(found) > 3 and found[-1]["done"] and found[-1]["text"] == "I like music."
    assert [each["text"] for each in found[:2]] == ["I", "I like"]
    trace = client.get(f"/trace/{found[-1]['id']}").json()
    assert trace["output"] == "I like music." and trace["id"] == found[-1]["id"]


def test_a_stream_begins_with_a_prefix(client):
    body = {"text": "我喜欢音乐。", "model": "zh-en", "prefix": ["▁I", "▁love"]}
    last = client.post("/translate/stream", json=body).text.splitlines()[-1]
    assert json.loads(last)["text"].startswith("I love")


@pytest.mark.parametrize("path", ["/positions", "/regression", "/steps?text=你好"])
def test_lessons_name_their_extra(client, path):
    response = client.get(path)
    assert response.status_code == 501 and response.json() == {"error": f"this route {EXTRA}"}


def test_a_text_is_traced(client):
    view = client.post("/trace", json={"text": "我喜欢音乐。", "model": "zh-en"}).json()
    assert view["output"] == "I like music." and len(view["flows"]) == 6 * 2 + 2 * 3
    assert [(kind["kind"], kind["n_layers"], kind["n_heads"]) for kind in view["kinds"]] == [
        *(("encoder", 6, 6), ("decoder", 2, 6), ("cross", 2, 6))
    ]
    n = len(view["target"]["pieces"]) * len(view["source"]["pieces"])
    packed = next(kind["weights"] for kind in view["kinds"] if kind["kind"] == "cross")
    assert len(zlib.decompress(b64decode(packed), -15)) == 2 * 6 * n
    assert view["checks"]["log_prob"] < 1e-4 and len(view["steps"][0]["alternatives"]) == 10
    address = f"/trace/{view['id']}"
    head = client.get(f"{address}/head", params={"kind": "encoder", "layer": 0, "head": 1}).json()
    assert len(head["terms"]) == 5 and head["error"] < 1e-5
    assert [sum(row) for row in head["weights"]] == pytest.approx([1.0] * len(head["queries"]), abs=1e-5)
    leaf = next(each["node"] for each in view["tree"]["leaves"] if each["node"] != view["leaf"])
    other = client.get(address, params={"node": leaf}).json()
    assert other["leaf"] == leaf and other["output"] != view["output"] and other["checks"]["log_prob"] < 1e-4
    page = client.get(f"{address}/html")
    assert (page.status_code == 200 and "I like music." in page.text) or (
        page.status_code == 503 and "built" in page.text
    )
    refused = client.get(f"{address}/head", params={"kind": "encoder", "layer": 6, "head": 0})
    assert refused.status_code == 400 and "encoder layer must be 0 … 5, got 6" in refused.json()["error"]


@pytest.mark.parametrize("path", ["/translate", "/translate/stream", "/trace"])
def test_a_model_that_only_pytorch_runs_names_its_extra(client, path):
    body = {"q": "你好", "text": "你好", "target": "en", "model": "zh-en-recurrent"}
    response = client.post(path, json=body)
    assert response.status_code == 501
    assert f"a model with family 'recurrent' and attention 'additive' {EXTRA}" in response.json()["error"]


def test_the_server_describes_itself(client):
    assert client.get("/health").json() == {"status": "ok"}
    languages = {each["code"]: each["targets"] for each in client.get("/languages").json()}
    assert languages["zh"] == ["en"] and languages["en"] == ["zh"]
    models = client.get("/models").json()
    assert {"zh-en", "en-zh"} <= {each["name"] for each in models["models"]}
    assert "regard_requests_total" in client.get("/metrics").text
    for path in ("/studies", "/readers", "/writers"):
        assert client.get(path).status_code == 200
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/translate", "/trace", "/positions"} <= paths.keys()
    assert "501" in paths["/trace"]["post"]["responses"]


def test_the_page_is_served_where_it_is_built(client):
    response = client.get("/")
    assert response.status_code in {200, 503} and response.text.startswith("<!doctype html>")
