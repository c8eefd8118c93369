"""Text generation on a server: the stream and the trace agree token by token."""

import pytest

from regard.serve.models import check_folders
from tests.serve.planted import plant_writer
from tests.serve.server import client_of, lines_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return plant_writer(tmp_path_factory.mktemp("writers") / "letters")


@pytest.fixture(scope="module")
def client_with_writer(models, folder):
    with client_of(models, writers=(folder,)) as client:
        yield client


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.3, "seed": 4}, {"top_k": 2}])
def test_the_stream_and_the_trace_agree(client_with_writer, sampling):
    body = {"prompt": "abc fed", "pieces": 12, **sampling}
    lines = lines_of(client_with_writer.post("/generate/stream", json=body))
    view = client_with_writer.post("/generate", json=body).json()
    assert [piece for line in lines for piece in line["pieces"]] == view["target"]["pieces"]
    assert lines[0]["pieces"] == list("abc▁fed") and lines[-1] == {**lines[-1], "pieces": [], "done": True}
    assert [len(line["looked"]) for line in lines[1:-1]] == list(range(8, 8 + len(lines) - 2))
    assert all(sum(line["looked"]) == pytest.approx(1.0, abs=1e-5) for line in lines[1:-1])


def test_a_generated_text_is_cached(client_with_writer):
    view = client_with_writer.post("/generate", json={"prompt": "abc", "pieces": 5}).json()
    assert [kind["kind"] for kind in view["kinds"]] == ["decoder"] and view["aligning"] is None
    head = client_with_writer.get(f"/trace/{view['id']}/head", params={"kind": "decoder", "layer": 1, "head": 0}).json()
    assert len(head["weights"]) == len(view["read"]["pieces"])


def test_writers_are_listed(client_with_writer, client):
    assert client_with_writer.get("/writers").json() == {"writers": ["letters"]}
    assert client.get("/writers").json() == {"writers": []}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"prompt": "xyz"}, "'x'"),
        ({"prompt": "abc", "pieces": 401}, "got 401"),
        ({"prompt": "a" * 64}, "got 64"),
        ({"prompt": "a", "writer": "leters"}, "did you mean 'letters'?"),
    ],
)
def test_errors_name_the_value(client_with_writer, body, words):
    for path in ("/generate", "/generate/stream"):
        response = client_with_writer.post(path, json=body)
        assert response.status_code == 400 and words in response.json()["error"], response.text


def test_a_server_without_writers_says_how_to_add_one(client, folders):
    response = client.post("/generate", json={"prompt": ""})
    assert response.status_code == 400 and "--writer" in response.json()["error"]
    with pytest.raises(ValueError, match="no such model folder"):
        check_folders("writer", [folders[0] / "nothing"], "regard train --family decoder")
