"""Questions: the answer stands marked in its text, and words of the question show what they looked at."""

from urllib.parse import urlencode

import numpy as np
import pytest

from tests.readers import CONTEXTS
from tests.web.conftest import expect, expect_address
from tests.web.told import weights

ASKED = {"context": CONTEXTS["en"], "question": "Who built his court there?"}


@pytest.fixture
def told(api) -> dict:
    return api.post("/answer", json=ASKED).json()


def looks(told: dict) -> np.ndarray:
    """Gives how much each word of the question looked at each word of the text, over all heads."""
    mean = weights(told["view"], "encoder").mean(axis=(0, 1))
    by_word = np.stack([mean[:, word["places"]].sum(1) for word in told["context"]], axis=1)
    return np.stack([by_word[word["places"]].mean(0) for word in told["question"]])


def test_a_question_is_asked_and_its_answer_marked(visit, told):
    page = visit("view=answers")
    page.get_by_label("Context").fill(ASKED["context"])
    page.get_by_label("Question", exact=True).fill(ASKED["question"])
    page.get_by_role("button", name="Answer", exact=True).click()
    words = told["context"][slice(*told["answer"])]
    expect(page.locator("span.answer")).to_have_text([word["text"] for word in words])
    expect(page.locator("[data-word]")).to_have_count(len(told["context"]))
    rows = page.locator("tbody tr td:first-child")
    expect(rows).to_have_text([*(each["text"] for each in told["stretches"]), "no answer"])


def test_a_word_of_the_question_colours_what_it_looked_at(visit, told, picture):
    page, shares = visit("view=answers&" + urlencode(ASKED)), looks(told)
    page.locator(".asked button").nth(1).hover()
    best = told["context"][int(shares[1].argmax())]["text"]
    expect(page.locator("main [aria-live]").first).to_contain_text(
        f"attends to {best} {round(100 * shares[1].max())} %"
    )
    drawn = [float(word.get_attribute("data-share")) for word in page.locator("[data-word]").all()]
    assert drawn == pytest.approx(shares[1].tolist(), abs=2e-4)
    picture(page, "answers-word")


def test_a_word_is_kept_by_keyboard_and_in_the_address(visit, told):
    page = visit("view=answers&" + urlencode(ASKED))
    page.locator(".asked button").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect_address(page, "word=1")
    other = visit.open(page.url)
    expect(other.locator(".asked button[aria-pressed=true]")).to_have_text(told["question"][1]["text"])


def test_without_a_reader_the_page_says_how_to_make_one(visit):
    page = visit.context().new_page()
    page.route("**/readers", lambda route: route.fulfill(json={"readers": []}))
    page.goto(visit.url + "#view=answers")
    expect(page.get_by_text("regard qa train --quick")).to_be_visible()
