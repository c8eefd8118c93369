"""Writing on a server: what streams is what the whole run says, piece by piece with what it looked at."""

import pytest

from regard.serve.models import check_folders
from tests.serve.planted import plant_writer
from tests.serve.server import client_of, lines_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return plant_writer(tmp_path_factory.mktemp("writers") / "letters")


@pytest.fixture(scope="module")
def writing(shelf, folder):
    with client_of(shelf, writers=(folder,)) as client:
        yield client


@pytest.mark.parametrize("chance", [{"temperature": 0.0}, {"temperature": 1.3, "seed": 4}, {"top_k": 2}])
def test_the_stream_writes_what_the_run_says(writing, chance):
    ask = {"prompt": "abc fed", "pieces": 12, **chance}
    lines = lines_of(writing.post("/generate/stream", json=ask))
    view = writing.post("/generate", json=ask).json()
    assert [piece for line in lines for piece in line["pieces"]] == view["target"]["pieces"]
    assert lines[0]["pieces"] == list("abc▁fed") and lines[-1] == {**lines[-1], "pieces": [], "done": True}
    assert [len(line["looked"]) for line in lines[1:-1]] == list(range(8, 8 + len(lines) - 2))
    assert all(sum(line["looked"]) == pytest.approx(1.0, abs=1e-5) for line in lines[1:-1])


def test_a_written_text_is_kept_and_asked_about(writing):
    view = writing.post("/generate", json={"prompt": "abc", "pieces": 5}).json()
    assert [kind["kind"] for kind in view["kinds"]] == ["decoder"] and view["aligning"] is None
    head = writing.get(f"/trace/{view['id']}/head", params={"kind": "decoder", "layer": 1, "head": 0}).json()
    assert len(head["weights"]) == len(view["read"]["pieces"])


def test_writers_are_listed(writing, client):
    assert writing.get("/writers").json() == {"writers": ["letters"]}
    assert client.get("/writers").json() == {"writers": []}


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        ({"prompt": "xyz"}, "'x'"),
        ({"prompt": "abc", "pieces": 401}, "got 401"),
        ({"prompt": "a" * 64}, "got 64"),
        ({"prompt": "a", "writer": "leters"}, "did you mean 'letters'?"),
    ],
)
def test_mistakes_are_said(writing, ask, words):
    for path in ("/generate", "/generate/stream"):
        said = writing.post(path, json=ask)
        assert said.status_code == 400 and words in said.json()["error"], said.text


def test_a_server_without_writers_says_how_to_get_one(client, folders):
    said = client.post("/generate", json={"prompt": ""})
    assert said.status_code == 400 and "--writer" in said.json()["error"]
    with pytest.raises(ValueError, match="no such model folder"):
        check_folders("writer", [folders[0] / "nothing"], "regard train --family decoder")
