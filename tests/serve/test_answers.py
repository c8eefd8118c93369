"""Questions on a server: answered as the reader itself answers them, and refused with a reason."""

import pytest

from regard.checkpoint.reading import load_reader, save_reader
from regard.decode.answers import answer_questions
from regard.serve.library import check_folders
from tests.readers import WINDOWS, questions, small_reader
from tests.serve.server import client_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("readers") / "facts"
    save_reader(place, small_reader(windows=WINDOWS), {})
    return place


@pytest.fixture(scope="module")
def asked():
    return questions("en")[1]


def test_a_question_is_answered_as_the_reader_answers_it(shelf, folder, asked):
    (best,) = answer_questions(load_reader(folder), [asked], 5)
    with client_of(shelf, readers=(folder,)) as client:
        assert client.get("/readers").json() == {"readers": ["facts"]}
        said = client.post("/answer", json={"question": asked.text, "context": asked.context}).json()
    assert [each["text"] for each in said["stretches"]] == [each.text for each in best.found]
    assert said["nowhere"] == pytest.approx(best.nowhere)
    first = said["stretches"][0]
    assert asked.context[first["start"] : first["stop"]] == first["text"]
    words = [word["text"] for word in said["context"][slice(*said["answer"])]]
    assert first["text"] in " ".join(words)
    assert not said["whole"] and [kind["kind"] for kind in said["view"]["kinds"]] == ["encoder"]


def test_mistakes_are_said(shelf, folder, client):
    ask = {"question": "Who?", "context": "Anna."}
    said = client.post("/answer", json=ask)
    assert said.status_code == 400 and "--reader" in said.json()["error"]
    with client_of(shelf, readers=(folder,)) as other:
        said = other.post("/answer", json={**ask, "reader": "fact"})
        assert said.status_code == 400 and "did you mean 'facts'?" in said.json()["error"]
        said = other.post("/answer", json={"question": "Who?", "context": "  "})
        assert said.status_code == 400 and "must have words" in said.json()["error"]


def test_folders_without_a_reader_or_of_one_name_are_refused(tmp_path, folder):
    with pytest.raises(ValueError, match="holds no reader"):
        check_folders("reader", [tmp_path], "regard qa train")
    with pytest.raises(ValueError, match="facts, facts"):
        check_folders("reader", [folder, folder], "regard qa train")
