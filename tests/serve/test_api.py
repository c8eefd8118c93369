"""All routes over a real connection: responses, and errors."""

import json
from dataclasses import fields, replace
from html import escape
from urllib.parse import urlencode

import pytest

import regard
from regard.serve import schema_api, schema_trace
from regard.serve.lessons import layer_lesson, position_lesson, regression_lesson
from regard.serve.schema_api import to_json
from regard.serve.serialize import make_head
from tests.serve.server import DECODE, TEXTS, lines_of


def names(shape):
    return {field.name for field in fields(shape)}


def best(translator, text, **changes):
    return translator.translate(text, replace(DECODE, **changes))[0]


def test_one_text_gets_one_translation(client, translator):
    response = client.post("/translate", json={"q": "bad cab", "source": "zh", "target": "en"})
    assert response.status_code == 200 and response.headers["content-type"] == "application/json"
    assert response.json() == {"translatedText": best(translator, "bad cab").text}


def test_a_list_gets_a_list_in_its_order(client, translator):
    response = client.post("/translate", json={"q": [*TEXTS, ""], "source": "zh", "target": "en"}).json()
    assert response["translatedText"] == [best(translator, text).text for text in TEXTS] + [""]
    assert client.post("/translate", json={"q": [], "source": "zh", "target": "en"}).json() == {"translatedText": []}


def test_alternatives_are_the_others_that_the_search_found(client, translator):
    body = {"q": "hello", "source": "zh", "target": "en", "alternatives": 2}
    found = best(translator, "hello", n_best=3).alternatives
    assert client.post("/translate", json=body).json() == {
        "translatedText": found[0].text,
        "alternatives": [each.text for each in found[1:]],
    }
    many = client.post("/translate", json={**body, "q": ["hello", "face"]}).json()
    assert many["alternatives"][0] == [each.text for each in found[1:]] and len(many["alternatives"]) == 2


def test_the_language_is_detected_by_the_script(client):
    response = client.post("/translate", json={"q": "你好", "source": "auto", "target": "en"}).json()
    assert response["detectedLanguage"] == {"language": "zh", "confidence": 100.0}
    mixed = client.post("/translate", json={"q": "你好 face", "source": "auto", "target": "en"}).json()
    assert mixed["detectedLanguage"] == {"language": "zh", "confidence": 66.7}


def test_a_text_in_the_target_language_is_given_back(client):
    body = {"q": ["你好", "hello"], "source": "auto", "target": "en", "alternatives": 1}
    response = client.post("/translate", json=body).json()
    assert response["translatedText"][1] == "hello" and response["alternatives"][1] == []
    assert response["detectedLanguage"][1] == {"language": "en", "confidence": 100.0}
    assert client.post("/translate", json={"q": "  hello\n", "source": "en", "target": "en"}).json() == {
        "translatedText": "  hello\n"
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("你好", [("zh", 100.0)]),
        ("How are you?", [("en", 100.0)]),
        ("guten Tag", [("en", 50.0)]),
        ("très bien to", [("en", 50.0)]),
        ("日本語です", [("ja", 100.0)]),
        ("你好 what", [("zh", 66.7), ("en", 33.3)]),
        ("привет", [("en", 0.0)]),
        ("123", [("en", 0.0)]),
    ],
)
def test_detection_says_how_sure_it_is(client, text, found):
    expected = [{"language": language, "confidence": confidence} for language, confidence in found]
    assert client.post("/detect", json={"q": text}).json() == expected
    assert client.post("/detect", data={"q": text, "api_key": ""}).json() == expected


def test_tags_are_kept_and_text_between_them_is_translated(client, translator):
    text = '<p class="a &amp; b">bad cab <b>hello</b>&nbsp;<br/>\n<script>face()</script><!-- face -->face &lt; 3</p>'
    response = client.post("/translate", json={"q": text, "source": "zh", "target": "en", "format": "html"}).json()
    bad, hello, face = (escape(best(translator, each).text, quote=False) for each in ("bad cab", "hello", "face < 3"))
    assert response["translatedText"] == (
        f'<p class="a &amp; b">{bad} <b>{hello}</b>&nbsp;<br/>\n<script>face()</script><!-- face -->{face}</p>'
    )
    plain = {"q": "<i> </i>", "source": "zh", "target": "en", "format": "html", "alternatives": 1}
    assert client.post("/translate", json=plain).json() == {"translatedText": "<i> </i>", "alternatives": []}


def test_line_breaks_are_kept(client):
    response = client.post("/translate", json={"q": "bad cab\n\nhello", "source": "zh", "target": "en"}).json()
    assert response["translatedText"].count("\n") == 2


def test_a_form_is_accepted_too(client, translator):
    form = {"q": "bad cab", "source": "zh", "target": "en", "alternatives": "1", "api_key": ""}
    response = client.post("/translate", data=form).json()
    assert response["translatedText"] == best(translator, "bad cab").text and len(response["alternatives"]) == 1


def test_beam_and_model_can_be_chosen(client, translator):
    greedy = client.post("/translate", json={"q": "face", "target": "en", "model": "tiny", "beam": 1}).json()
    assert greedy["translatedText"] == best(translator, "face", method="greedy", beam=1).text
    wrong = client.post("/translate", json={"q": "face", "target": "zh", "model": "tiny"})
    assert wrong.status_code == 400 and "'tiny' translates from zh to en" in wrong.json()["error"]


JSON = {"headers": {"Content-Type": "application/json"}}
ERRORS = [
    ("post", "/translate", {"json": {"target": "en"}}, 422, "q"),
    ("post", "/translate", {"json": {"q": 7, "target": "en"}}, 422, "q"),
    ("post", "/translate", {"json": {"q": "x"}}, 422, "target"),
    ("post", "/translate", {"json": {"q": "x", "target": "xx"}}, 400, "xx"),
    ("post", "/translate", {"json": {"q": "x", "target": "en", "source": "tlh"}}, 400, "tlh"),
    ("post", "/translate", {"json": {"q": "x", "target": "en", "format": "pdf"}}, 422, "format"),
    ("post", "/translate", {"json": {"q": "x", "target": "en", "model": "tny"}}, 400, "did you mean 'tiny'"),
    ("post", "/translate", {"json": {"q": "x", "source": "zh", "target": "en", "beam": 17}}, 400, "17"),
    ("post", "/translate", {"json": {"q": "x", "source": "zh", "target": "en", "beam": 0}}, 422, "beam"),
    ("post", "/translate", {"json": {"q": "x", "source": "zh", "target": "en", "alternatives": 16}}, 400, "16"),
    ("post", "/translate", {"content": b'{"q": ', **JSON}, 400, "JSON"),
    ("post", "/translate", {"content": b"\xff\xfe", **JSON}, 400, "JSON"),
    ("post", "/translate", {"content": b"[" * 100_000, **JSON}, 400, "JSON"),
    ("post", "/translate", {"content": b'{"q": "\\ud800", "source": "zh", "target": "en"}', **JSON}, 400, "surrogate"),
    ("post", "/translate", {"content": b'{"q": "a"}'}, 415, "got none"),
    ("post", "/translate", {"content": b'{"q": "a"}', "headers": {"Content-Type": "text/plain"}}, 415, "text/plain"),
    ("post", "/trace", {"content": b"{}", "headers": {"Content-Type": "text/plain;charset=UTF-8"}}, 415, "text/plain"),
    ("post", "/detect", {"json": {"q": 7}}, 422, "q"),
    ("get", f"/{'x' * 5000}.js", {}, 404, "no such file"),
    ("get", f"/assets/{'x/' * 3000}", {}, 404, "no such file"),
    ("get", "/assets/%00.js", {}, 404, "no such file"),
    ("get", f"/trace/{'x' * 9000}", {}, 404, "POST /trace"),
    ("post", "/trace", {"content": b"{", **JSON}, 400, "JSON"),
    ("post", "/trace", {"content": b"[]", **JSON}, 422, "body"),
    ("post", "/trace", {"json": {}}, 422, "text"),
    ("post", "/trace", {"json": {"text": "  ", "model": "tiny"}}, 400, "words"),
    ("post", "/trace", {"json": {"text": "a", "model": "tiny", "prefix": ["zzz"]}}, 400, "zzz"),
    ("post", "/trace", {"json": {"text": "a", "model": "tiny", "prefix": ["</s>"]}}, 400, "EOS"),
    ("post", "/translate/stream", {"json": {"text": "a", "model": "nobody"}}, 400, "nobody"),
    ("get", "/trace/nobody", {}, 404, "POST /trace"),
    ("get", "/positions?scheme=sinusoid", {}, 400, "did you mean 'sinusoidal'"),
    ("get", "/positions?length=7", {}, 422, "length"),
    ("get", "/regression?noise=-1", {}, 422, "noise"),
    ("get", "/steps?text=a&model=tiny&layer=2", {}, 400, "got 2"),
    ("get", "/steps?text=a&model=tiny-back", {}, 400, "Recurrent"),
    ("get", "/nothing", {}, 404, "/nothing"),
    ("get", "/translate", {}, 405, "GET"),
    ("delete", "/health", {}, 405, "DELETE"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "words"), ERRORS)
def test_errors_have_one_form(client, method, path, body, status, words):
    response = client.request(method, path, **body)
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"] and words in response.json()["error"]


def test_a_trace_its_heads_and_other_hypotheses_are_returned(client, translator):
    response = client.post("/trace", json={"text": "bad cab", "model": "tiny"}).json()
    trace = regard.trace(translator, "bad cab", replace(DECODE))
    assert set(response) == names(schema_trace.View)
    assert response["output"] == trace.output and response["target"]["pieces"] == list(trace.target)
    place = {"kind": "cross", "layer": 1, "head": 1}
    head = client.get(f"/trace/{response['id']}/head", params=place)
    assert head.json() == json.loads(to_json(make_head(trace, *place.values())))
    other = response["tree"]["leaves"][1]
    seen = client.get(f"/trace/{response['id']}", params={"node": other["node"]}).json()
    assert seen["leaf"] == other["node"] and seen["output"] == other["text"] and seen["id"] == response["id"]
    head = client.get(f"/trace/{response['id']}/head", params={**place, "node": other["node"]}).json()
    assert len(head["queries"]) == len(seen["read"]["pieces"])
    assert client.get(f"/trace/{response['id']}", params={"node": 10**6}).status_code == 400


def test_a_translation_goes_on_from_an_alternative(client):
    response = client.post("/trace", json={"text": "bad cab", "model": "tiny"}).json()
    step = response["steps"][1]
    other = next(each["piece"] for each in step["alternatives"] if each["piece"] not in (step["piece"], "</s>"))
    prefix = [response["target"]["pieces"][0], other]
    again = client.post("/trace", json={"text": "bad cab", "model": "tiny", "prefix": prefix}).json()
    assert again["target"]["pieces"][:2] == prefix
    stream = lines_of(client.post("/translate/stream", json={"text": "bad cab", "model": "tiny", "prefix": prefix}))
    assert stream[-1]["text"] == again["output"]


def test_a_long_text_is_looked_at_part_by_part(client):
    response = client.post("/trace", json={"text": "bad cab. " * 9, "model": "tiny"}).json()
    assert response["part"] == 0 and response["n_parts"] > 1
    second = client.get(f"/trace/{response['id']}", params={"part": 1}).json()
    assert second["part"] == 1 and second["text"] == "bad cab."
    assert client.get(f"/trace/{response['id']}", params={"part": 99}).status_code == 400


@pytest.mark.parametrize("beam", [1, 3])
def test_a_translation_is_streamed_as_it_is_written(client, translator, beam):
    body = {"text": "dead bee", "model": "tiny", "beam": beam}
    response = client.post("/translate/stream", json=body)
    assert response.headers["content-type"] == "application/x-ndjson"
    lines, settings = lines_of(response), {"method": "greedy"} if beam == 1 else {}
    found = best(translator, "dead bee", beam=beam, **settings)
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert set(lines[0]) == names(schema_api.TranslationUpdate)
    assert lines[-1]["text"] == found.text and lines[-1]["pieces"] == found.tokens
    view = client.get(f"/trace/{lines[-1]['id']}").json()
    assert view["output"] == found.text and view == client.post("/trace", json=body).json() | {"id": view["id"]}
    assert len(lines) > len(found.tokens)
    assert [len(line["pieces"]) for line in lines[:3]] == [1, 2, 3]


def test_positions_regression_and_steps_are_those_of_the_studies(client, translator):
    query = {"scheme": "rotary", "length": 16, "width": 6, "base": 100.0, "steps": 2, "place": 3}
    response = client.get("/positions", params=query).json()
    assert response == json.loads(to_json(position_lesson(**query))) and set(response) == names(schema_api.Positions)
    query = {"seed": 3, "n_train": 7, "n_test": 5, "noise": 0.25, "steps": 4, "w": 2.0}
    response = client.get("/regression", params=query).json()
    assert response == json.loads(to_json(regression_lesson(**query))) and set(response) == names(
        schema_api.RegressionJson
    )
    response = client.get("/steps", params={"text": "bad cab", "model": "tiny", "layer": 1, "head": 1}).json()
    assert response == json.loads(to_json(layer_lesson(translator, "tiny", "bad cab", 1, 1))) and set(
        response
    ) == names(schema_api.LayerSteps)


def test_the_server_describes_itself(client):
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/languages").json() == [
        {"code": "zh", "name": "Chinese", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": ["zh"]},
    ]
    response = client.get("/models").json()
    assert [model["name"] for model in response["models"]] == ["tiny", "tiny-back"]
    assert set(response) == names(schema_api.Models) and set(response["models"][0]) == names(schema_api.Model)
    assert response["models"][0]["scores"] == {"bleu": 12.5, "measured_on": "test"}
    assert response["limits"]["max_beam"] == 16


def test_metrics_are_in_prometheus_format(client):
    client.get("/health")
    client.get(f"/trace/{'x' * 30}?{urlencode({'node': 3})}")
    client.post("/translate", json={"q": ["hello", "face"], "source": "zh", "target": "en"})
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    counts = dict(line.rsplit(" ", 1) for line in response.text.splitlines() if not line.startswith("#"))
    assert int(counts['regard_requests_total{method="GET",route="/health",status="200"}']) >= 1
    assert int(counts['regard_requests_total{method="GET",route="/trace/{id}",status="404"}']) >= 1
    assert float(counts['regard_request_seconds_sum{route="/translate"}']) > 0
    assert int(counts['regard_batch_texts_bucket{le="+Inf"}']) == int(counts["regard_batch_texts_count"]) >= 1
    assert int(counts["regard_texts_total"]) >= 2 and counts["regard_waiting_texts"] == "0"
    below = [
        int(counts[f'regard_request_seconds_bucket{{route="/health",le="{le}"}}']) for le in ("0.005", "1", "+Inf")
    ]
    assert below == sorted(below)


def test_responses_have_security_headers(client):
    headers = client.get("/health").headers
    assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    assert "default-src 'self'" in headers["content-security-policy"]
    assert "access-control-allow-origin" not in client.get("/health", headers={"Origin": "https://a.example"}).headers
    assert "server" not in headers
