"""Studies on a server: what their folder holds is told, anew each time, and nothing of where it lies."""

import pytest

from regard.checkpoint import read_json, write_json
from regard.serve.routes_site import check_studies
from tests.serve.planted import BLEU, plant_study
from tests.serve.server import client_of


@pytest.fixture
def folder(tmp_path):
    return plant_study(tmp_path / "ablation")


def test_all_runs_are_told(shelf, folder):
    with client_of(shelf, studies=(folder,)) as client:
        answer = client.get("/studies")
    (study,) = answer.json()["studies"]
    assert study["name"] == "ablation" and study["measured_on"] == "test"
    bleu = [run["bleu"] for run in study["runs"] if run["error"] is None]
    assert bleu == [each for pair in BLEU.values() for each in pair]
    assert study["runs"][-1]["error"] == "ValueError: unknown norm 'odd'"
    assert study["runs"][0]["curve"][0] == {"step": 500, "loss": 4.0, "bleu": 15.0}
    assert study["clear"] == ["no positions"]
    assert str(folder.parent) not in answer.text


def test_the_baseline_comes_first_whichever_run_ended_first(shelf, folder):
    told = read_json(folder / "results.json")
    write_json(folder / "results.json", {**told, "rows": told["rows"][::-1]})
    with client_of(shelf, studies=(folder,)) as client:
        (study,) = client.get("/studies").json()["studies"]
    assert study["runs"][0]["variant"] == "baseline"
    assert study["clear"] == ["no positions"]


def test_a_study_that_grows_is_read_anew(shelf, folder):
    with client_of(shelf, studies=(folder,)) as client:
        before = client.get("/studies").json()["studies"][0]["runs"]
        whole = (folder / "results.json").read_text(encoding="utf-8")
        (folder / "results.json").write_text(whole.replace('"baseline"', '"other"'), encoding="utf-8")
        after = client.get("/studies").json()["studies"][0]["runs"]
    assert before[0]["variant"] == "baseline" and after[0]["variant"] == "other"


def test_what_cannot_be_read_is_said_without_its_place(shelf, folder, caplog):
    (folder / "results.json").write_text('{"rows": [{"odd": 1}]}', encoding="utf-8")
    with client_of(shelf, studies=(folder,)) as client:
        answer = client.get("/studies")
    assert answer.status_code == 500 and "'ablation' could not be read" in answer.json()["error"]
    assert str(folder) not in answer.text and str(folder) in caplog.text


def test_a_server_without_studies_has_none(client):
    assert client.get("/studies").json() == {"studies": []}


def test_a_folder_without_results_is_refused_before_the_server_starts(tmp_path):
    with pytest.raises(ValueError, match=r"holds no results\.json"):
        check_studies([tmp_path])
