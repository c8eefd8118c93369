"""Studies on a server: read from their folders on each request, without revealing the paths."""

import pytest

from regard.checkpoint import read_json, write_json
from regard.serve.studies import check_studies
from tests.serve.planted import BLEU, plant_study
from tests.serve.server import client_of


@pytest.fixture
def folder(tmp_path):
    return plant_study(tmp_path / "ablation")


def test_all_runs_are_returned(models, folder):
    with client_of(models, studies=(folder,)) as client:
        response = client.get("/studies")
    (study,) = response.json()["studies"]
    assert study["name"] == "ablation" and study["measured_on"] == "test"
    bleu = [run["bleu"] for run in study["runs"] if run["error"] is None]
    assert bleu == [each for pair in BLEU.values() for each in pair]
    assert study["runs"][-1]["error"] == "ValueError: unknown norm 'odd'"
    assert study["runs"][0]["curve"][0] == {"step": 500, "loss": 4.0, "bleu": 15.0}
    assert study["clear"] == ["no positions"]
    assert str(folder.parent) not in response.text


def test_the_baseline_comes_first_whichever_run_ended_first(models, folder):
    results = read_json(folder / "results.json")
    write_json(folder / "results.json", {**results, "rows": results["rows"][::-1]})
    with client_of(models, studies=(folder,)) as client:
        (study,) = client.get("/studies").json()["studies"]
    assert study["runs"][0]["variant"] == "baseline"
    assert study["clear"] == ["no positions"]


def test_a_study_is_read_again_on_each_request(models, folder):
    with client_of(models, studies=(folder,)) as client:
        before = client.get("/studies").json()["studies"][0]["runs"]
        whole = (folder / "results.json").read_text(encoding="utf-8")
        (folder / "results.json").write_text(whole.replace('"baseline"', '"other"'), encoding="utf-8")
        after = client.get("/studies").json()["studies"][0]["runs"]
    assert before[0]["variant"] == "baseline" and after[0]["variant"] == "other"


def test_an_unreadable_study_is_reported_without_its_path(models, folder, caplog):
    (folder / "results.json").write_text('{"rows": [{"odd": 1}]}', encoding="utf-8")
    with client_of(models, studies=(folder,)) as client:
        response = client.get("/studies")
    assert response.status_code == 500 and "could not read the study 'ablation'" in response.json()["error"]
    assert str(folder) not in response.text and str(folder) in caplog.text


def test_a_server_without_studies_has_none(client):
    assert client.get("/studies").json() == {"studies": []}


def test_a_folder_without_results_is_refused_before_the_server_starts(tmp_path):
    with pytest.raises(ValueError, match=r"holds no results\.json"):
        check_studies([tmp_path])
