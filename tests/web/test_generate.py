"""Text generation: a text streams in, and each token shows its attention."""

import pytest

from tests.web.conftest import expect, expect_url, settle
from tests.web.expected import weights

ADDRESS = "view=generate&prompt=abc+fed&maxTokens=30"


@pytest.fixture
def expected(api) -> dict:
    return api.post("/generate", json={"prompt": "abc fed", "pieces": 30}).json()


def texts(expected: dict) -> list[str]:
    return [token.replace("▁", " ").replace("⏎", "\n") for token in expected["target"]["pieces"] if token != "</s>"]


def test_a_prompt_is_continued(visit, expected, picture):
    page = visit("view=generate")
    page.get_by_label("Max tokens").fill("30")
    page.get_by_label("Prompt").fill("abc fed")
    page.get_by_role("button", name="Generate", exact=True).last.click()
    expect(page.locator(".text")).to_have_text("".join(texts(expected)).strip())
    settle(page)
    expect(page.locator("canvas").first).to_be_visible()
    picture(page, "generate")


def test_a_token_shows_its_attention(visit, expected):
    page, whole = visit(ADDRESS), weights(expected, "decoder").mean(axis=(0, 1))
    expect(page.locator("canvas").first).to_be_visible()
    for number in (7, 12):
        page.locator(".text span").nth(number).hover()
        drawn = [float(each.get_attribute("data-weight")) for each in page.locator(".text span").all()]
        assert drawn[:number] == pytest.approx(whole[number, 1 : number + 1].tolist(), abs=2e-4)
        assert not any(drawn[number:])


def test_a_head_is_selected_among_all(visit, expected):
    page, whole = visit(ADDRESS), weights(expected, "decoder")
    page.get_by_role("button", name="Open layer 1, head 0").click()
    expect_url(page, "generate.heads=1%3A0")
    page.locator(".text span").nth(9).hover()
    drawn = [float(each.get_attribute("data-weight")) for each in page.locator(".text span").all()]
    assert drawn[:9] == pytest.approx(whole[1, 0, 9, 1:10].tolist(), abs=2e-4)


def test_another_seed_generates_another_text(visit):
    page = visit(ADDRESS)
    before = page.locator(".text").text_content()
    page.get_by_role("button", name="New sample").click()
    expect_url(page, "generate.seed=1")
    settle(page)
    assert page.locator(".text").text_content() != before


def test_without_a_model_the_page_says_how_to_train_one(visit):
    page = visit.context().new_page()
    page.route("**/writers", lambda route: route.fulfill(json={"writers": []}))
    page.goto(visit.url + "#view=generate")
    expect(page.get_by_text("--family decoder")).to_be_visible()
