"""Translate, as a person uses it."""

import math
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.web.conftest import expect, settle
from tests.web.told import shares, shown, words


def choices(page) -> dict[str, list[str]]:
    """Gives what the address says."""
    return parse_qs(urlsplit(page.url).fragment)


def test_the_first_screen_shows_the_example_translated(visit, xian, picture):
    page = visit()
    assert page.input_value("input[type=text]") == "介绍一下西安"
    expect(page.locator("g.source text")).to_have_text(["介绍", "一下", "西", "安", "‹end›"])
    expect(page.locator("g.target text")).to_have_text([word["text"] for word in words(xian["target"])])
    expect(page.locator(".curves path")).to_have_count(int((shares(xian) >= 0.1).sum()))
    picture(page, "translate")


def test_a_word_shows_what_it_looked_at(visit, xian, picture):
    page, told = visit(), shares(xian)
    for number, row in enumerate(told):
        page.locator("g.target").nth(number).hover()
        expect(page.locator(".curves path")).to_have_count(int((row >= 0.02).sum()))
        strongest = page.locator("g.source text").nth(int(row.argmax())).text_content()
        best = f"attends to {strongest} {round(100 * row.max())} %"
        expect(page.locator("[data-picture=translation] [aria-live]")).to_contain_text(best)
        drawn = [float(each.get_attribute("data-share")) for each in page.locator("g.source").all()]
        assert drawn == pytest.approx(row.tolist(), abs=2e-4)
    picture(page, "translate-word")


def test_the_heads_of_one_layer_are_averaged_where_the_reader_wants_it(visit, xian):
    page, told = visit(), shares(xian, layer=1)
    expect(page.get_by_text("Mean over 12 heads.")).to_be_visible()
    page.get_by_role("radio", name="Layer 1").check()
    page.locator("g.target").first.hover()
    expect(page.get_by_text("Mean over 6 heads.")).to_be_visible()
    drawn = [float(each.get_attribute("data-share")) for each in page.locator("g.source").all()]
    assert drawn == pytest.approx(told[0].tolist(), abs=2e-4)
    assert drawn != pytest.approx(shares(xian)[0].tolist(), abs=1e-2)
    assert choices(page)["heads"] == ["1"]


def test_words_are_pinned_by_mouse_and_by_keyboard(visit):
    page = visit()
    page.locator("g.target").first.click()
    page.mouse.move(5, 5)
    page.locator("g.target").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("g.target[aria-pressed=true]")).to_have_count(2)
    assert choices(page)["pins"] == ["0.1"]
    page.get_by_role("button", name="Unpin all").click()
    expect(page.locator("g.target[aria-pressed=true]")).to_have_count(0)
    assert "pins" not in choices(page)


def test_pieces_are_shown_instead_of_words(visit, xian, picture):
    page = visit()
    page.get_by_role("radio", name="Tokens").check()
    expect(page.locator("g.target text")).to_have_text([shown(piece) for piece in xian["target"]["pieces"]])
    expect(page.locator("g.source text")).to_have_text([shown(piece) for piece in xian["source"]["pieces"]])
    picture(page, "translate-pieces")


def test_alternatives_have_the_probabilities_of_the_model(visit, xian):
    page = visit()
    columns = page.locator("ol > li").all()
    assert len(columns) == len(xian["steps"])
    for column, step in zip(columns, xian["steps"], strict=True):
        for button, option in zip(column.locator("button").all(), step["alternatives"], strict=False):
            share = 100 * math.exp(option["log_prob"])
            expect(button.locator(".piece")).to_have_text(shown(option["piece"]))
            expect(button.locator(".share")).to_have_text(f"{share:.0f} %" if share >= 1 else "< 1 %")


def test_the_reader_goes_on_from_an_alternative(visit, api, xian, picture):
    page, said = visit(), [word["text"] for word in words(xian["target"])]
    at, option = next(
        (at, option)
        for at, step in enumerate(xian["steps"])
        for option in step["alternatives"]
        if option["piece"] not in {step["piece"], "</s>"} and 0.1 < math.exp(option["log_prob"]) < 0.9
    )
    page.locator("ol > li").nth(at).locator("button").nth(xian["steps"][at]["alternatives"].index(option)).click()
    settle(page)
    page.wait_for_function("() => document.querySelectorAll('g.target').length > 0")
    prefix = [*xian["target"]["pieces"][:at], option["piece"]]
    told = api.post("/trace", json={"text": "介绍一下西安", "beam": 5, "prefix": prefix}).json()
    assert told["target"]["pieces"][: at + 1] == prefix
    expect(page.locator("g.target text")).to_have_text([word["text"] for word in words(told["target"])])
    assert choices(page)["prefix"] == [" ".join(prefix)]
    picture(page, "translate-forced")
    page.get_by_role("button", name="Clear prefix").click()
    expect(page.locator("g.target text")).to_have_text(said)


def test_a_sentence_of_ones_own_streams_in(visit, api):
    page = visit()
    heard = []
    page.on("request", lambda asked: asked.method == "POST" and heard.append(urlsplit(asked.url).path))
    text = "他昨天在北京买了一本书。"
    page.fill("input[type=text]", text)
    page.keyboard.press("Enter")
    page.wait_for_selector(".writing")
    page.wait_for_function("() => document.querySelectorAll('g.target').length > 4")
    settle(page)
    assert heard == ["/translate/stream", "/trace"]
    said = api.post("/translate", json={"q": text, "source": "zh", "target": "en", "beam": 5}).json()["translatedText"]
    spoken = "".join(page.locator("g.target text").all_text_contents())
    assert spoken == said.replace(" ", "")
    assert choices(page)["text"] == [text]


def test_model_and_beam_are_chosen(visit):
    page = visit()
    page.get_by_label("Beam").select_option("1")
    settle(page)
    page.get_by_label("Model").select_option("en-zh")
    settle(page)
    page.fill("input[type=text]", "I like music.")
    page.keyboard.press("Enter")
    page.wait_for_function("() => /音乐/.test(document.querySelector('[data-picture=translation]')?.textContent ?? '')")
    settle(page)
    assert choices(page) == {"beam": ["1"], "model": ["en-zh"], "text": ["I like music."]}


def test_what_the_server_refuses_is_said(visit):
    page = visit()
    page.fill("input[type=text]", " ? " * 3)
    page.route("**/translate/stream", lambda route: route.fulfill(status=413, json={"error": "too long, got 9"}))
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("too long, got 9")
    visit.wrong.clear()  # the browser writes refused requests to its console
