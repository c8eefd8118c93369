"""Glossaries over HTTP: each request has its own, within bounds, beside others in the same queue."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from regard.engine import BatchScheduler
from regard.pipeline.glossary import Glossary
from regard.search.constraint import Constraint
from tests.serve.server import DECODE, TEXTS

ZH_EN = {"source": "zh", "target": "en"}


def post(client, **body):
    return client.post("/translate", json={**ZH_EN, **body})


def test_a_request_with_a_glossary_gets_what_python_gets(client, translator):
    terms = {"bad": ["face", "cab"], "hello": "bead"}
    glossary, texts = Glossary(terms, translator.tokenizer), ["bad hello. bad!", "cab", "", "hello"]
    expected = [each.text for each in translator.translate(texts, DECODE, glossary=glossary)]
    assert post(client, q=texts, glossary=terms).json()["translatedText"] == expected
    assert "bead" in expected[0] and "bead" in expected[3]
    chosen = replace(DECODE, method="beam", beam=2, n_best=2)
    found = translator.translate("hello", chosen, glossary=glossary)[0].alternatives
    answer = post(client, q="hello", glossary=terms, beam=2, alternatives=1).json()
    assert [answer["translatedText"], *answer["alternatives"]] == [each.text for each in found]


def test_glossaries_of_requests_that_wait_together_are_not_mixed_up(client, translator):
    terms = [{"hello": word} for word in ("bad", "face", "dead")] * 3 + [None] * 3
    with ThreadPoolExecutor(len(terms)) as pool:
        answers = list(pool.map(lambda each: post(client, q=["hello", *TEXTS], glossary=each).json(), terms))
    for own, answer in zip(terms, answers, strict=True):
        glossary = None if own is None else Glossary(own, translator.tokenizer)
        expected = [each.text for each in translator.translate(["hello", *TEXTS], DECODE, glossary=glossary)]
        assert answer["translatedText"] == expected


def test_text_between_tags_keeps_to_the_glossary(client):
    answer = post(client, q="<p>hello</p><i>hello</i>", format="html", glossary={"hello": "bead"}).json()
    assert answer["translatedText"].count("bead") == 2


@pytest.mark.parametrize(
    ("glossary", "status", "words"),
    [
        ({f"a{n}": "b" for n in range(1001)}, 422, "at most 1000"),
        ({"a": ["b"] * 17}, 422, "at most 16"),
        ({"a": []}, 422, "at least 1"),
        ({"a": "b" * 201}, 422, "at most 200"),
        ({"a": 3}, 422, "glossary"),
        (["a"], 422, "dictionary"),
        ({" ": "b"}, 400, "must not be empty, got ' '"),
        ({"a": "é"}, 400, "what the model can write, got 'é' for 'a'"),
    ],
)
def test_what_is_refused(client, glossary, status, words):
    response = post(client, q="hello", glossary=glossary)
    assert response.status_code == status and words in response.json()["error"]
    assert post(client, q="hello").status_code == 200


def test_what_one_sentence_cannot_have_is_nobody_else_s_error(translator):
    scheduler = BatchScheduler(translator.engine)
    ids = translator.tokenizer.encode("hello", "src")
    impossible = Constraint(((10_000,),))
    numbers = [scheduler.add(ids, DECODE), scheduler.add(ids, DECODE, [impossible]), scheduler.add(ids, DECODE)]
    done = dict(outcome for _ in range(3) for outcome in scheduler.step())
    assert isinstance(done[numbers[1]], Exception) and not len(scheduler)
    assert done[numbers[0]] == done[numbers[2]] and done[numbers[0]][0].ids
