"""Question answering: the answer is marked in its context, and question words show their attention."""

from urllib.parse import urlencode

import numpy as np
import pytest

from tests.readers import CONTEXTS
from tests.web.conftest import expect, expect_url
from tests.web.expected import weights

REQUEST = {"context": CONTEXTS["en"], "question": "Who built his court there?"}


@pytest.fixture
def expected(api) -> dict:
    return api.post("/answer", json=REQUEST).json()


def attention(expected: dict) -> np.ndarray:
    """Return the weights of the question words on the context words, over all heads."""
    mean = weights(expected["view"], "encoder").mean(axis=(0, 1))
    by_word = np.stack([mean[:, word["places"]].sum(1) for word in expected["context"]], axis=1)
    return np.stack([by_word[word["places"]].mean(0) for word in expected["question"]])


def test_a_question_is_asked_and_its_answer_marked(visit, expected):
    page = visit("view=answers")
    page.get_by_label("Context").fill(REQUEST["context"])
    page.get_by_label("Question", exact=True).fill(REQUEST["question"])
    page.get_by_role("button", name="Answer", exact=True).click()
    words = expected["context"][slice(*expected["answer"])]
    expect(page.locator("span.answer")).to_have_text([word["text"] for word in words])
    expect(page.locator("[data-word]")).to_have_count(len(expected["context"]))
    answers = page.locator("tbody tr td:first-child")
    expect(answers).to_have_text([*(each["text"] for each in expected["stretches"]), "no answer"])


def test_a_question_word_shows_its_attention(visit, expected, picture):
    page, rows = visit("view=answers&" + urlencode(REQUEST)), attention(expected)
    page.locator("p.question button").nth(1).hover()
    best = expected["context"][int(rows[1].argmax())]["text"]
    expect(page.locator("main [aria-live]").first).to_contain_text(f"attends to: {best} {round(100 * rows[1].max())} %")
    drawn = [float(word.get_attribute("data-weight")) for word in page.locator("[data-word]").all()]
    assert drawn == pytest.approx(rows[1].tolist(), abs=2e-4)
    picture(page, "answers-word")


def test_a_word_is_pinned_by_keyboard_and_in_the_url(visit, expected):
    page = visit("view=answers&" + urlencode(REQUEST))
    page.locator("p.question button").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect_url(page, "word=1")
    other = visit.open(page.url)
    expect(other.locator("p.question button[aria-pressed=true]")).to_have_text(expected["question"][1]["text"])


def test_without_a_reader_the_page_says_how_to_make_one(visit):
    page = visit.context().new_page()
    page.route("**/readers", lambda route: route.fulfill(json={"readers": []}))
    page.goto(visit.url + "#view=answers")
    expect(page.get_by_text("regard qa train --quick")).to_be_visible()
