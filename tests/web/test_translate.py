"""The Translate view."""

import math
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.web.conftest import expect, settle
from tests.web.expected import cross_attention, label, words


def parameters(page) -> dict[str, list[str]]:
    """Return the parameters in the URL fragment."""
    return parse_qs(urlsplit(page.url).fragment)


def test_the_first_screen_shows_the_example_translated(visit, xian, picture):
    page = visit()
    assert page.input_value("input[type=text]") == "介绍一下西安"
    expect(page.locator("g.source text")).to_have_text(["介绍", "一下", "西", "安", "‹end›"])
    expect(page.locator("g.target text")).to_have_text([word["text"] for word in words(xian["target"])])
    expect(page.locator(".curves path")).to_have_count(int((cross_attention(xian) >= 0.1).sum()))
    picture(page, "translate")


def test_a_word_shows_its_attention(visit, xian, picture):
    page, expected = visit(), cross_attention(xian)
    for number, row in enumerate(expected):
        page.locator("g.target").nth(number).hover()
        expect(page.locator(".curves path")).to_have_count(int((row >= 0.02).sum()))
        strongest = page.locator("g.source text").nth(int(row.argmax())).text_content()
        best = f"attends to: {strongest} {round(100 * row.max())} %"
        expect(page.locator("[data-picture=translation] [aria-live]")).to_contain_text(best)
        drawn = [float(each.get_attribute("data-weight")) for each in page.locator("g.source").all()]
        assert drawn == pytest.approx(row.tolist(), abs=2e-4)
    picture(page, "translate-word")


def test_the_heads_of_one_layer_are_averaged_on_request(visit, xian):
    page, expected = visit(), cross_attention(xian, layer=1)
    expect(page.get_by_text("Mean over 12 heads.")).to_be_visible()
    page.get_by_role("radio", name="Layer 1").check()
    page.locator("g.target").first.hover()
    expect(page.get_by_text("Mean over 6 heads.")).to_be_visible()
    drawn = [float(each.get_attribute("data-weight")) for each in page.locator("g.source").all()]
    assert drawn == pytest.approx(expected[0].tolist(), abs=2e-4)
    assert drawn != pytest.approx(cross_attention(xian)[0].tolist(), abs=1e-2)
    assert parameters(page)["heads"] == ["1"]


def test_words_are_pinned_by_mouse_and_by_keyboard(visit):
    page = visit()
    page.locator("g.target").first.click()
    page.mouse.move(5, 5)
    page.locator("g.target").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("g.target[aria-pressed=true]")).to_have_count(2)
    assert parameters(page)["pins"] == ["0.1"]
    page.get_by_role("button", name="Unpin all").click()
    expect(page.locator("g.target[aria-pressed=true]")).to_have_count(0)
    assert "pins" not in parameters(page)


def test_tokens_are_shown_instead_of_words(visit, xian, picture):
    page = visit()
    page.get_by_role("radio", name="Tokens").check()
    expect(page.locator("g.target text")).to_have_text([label(token) for token in xian["target"]["pieces"]])
    expect(page.locator("g.source text")).to_have_text([label(token) for token in xian["source"]["pieces"]])
    picture(page, "translate-tokens")


def test_alternatives_have_the_probabilities_of_the_model(visit, xian):
    page = visit()
    columns = page.locator("ol > li").all()
    assert len(columns) == len(xian["steps"])
    for column, step in zip(columns, xian["steps"], strict=True):
        for button, option in zip(column.locator("button").all(), step["alternatives"], strict=False):
            probability = 100 * math.exp(option["log_prob"])
            expect(button.locator(".token")).to_have_text(label(option["piece"]))
            expect(button.locator(".probability")).to_have_text(f"{probability:.0f} %" if probability >= 1 else "< 1 %")


def test_a_translation_continues_from_an_alternative(visit, api, xian, picture):
    page, before = visit(), [word["text"] for word in words(xian["target"])]
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
    expected = api.post("/trace", json={"text": "介绍一下西安", "beam": 5, "prefix": prefix}).json()
    assert expected["target"]["pieces"][: at + 1] == prefix
    expect(page.locator("g.target text")).to_have_text([word["text"] for word in words(expected["target"])])
    assert parameters(page)["prefix"] == [" ".join(prefix)]
    picture(page, "translate-forced")
    page.get_by_role("button", name="Clear prefix").click()
    expect(page.locator("g.target text")).to_have_text(before)


# Notes that a stream was shown, however soon it is over.
OBSERVE = """() => {
  window.streamed = false
  const look = () => { window.streamed ||= document.querySelector('.output') !== null }
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true })
}"""


def test_a_new_sentence_streams_in(visit, api):
    page = visit()
    page.evaluate(OBSERVE)
    requests = []
    page.on("request", lambda request: request.method == "POST" and requests.append(urlsplit(request.url).path))
    text = "他昨天在北京买了一本关于中国历史的书，因为他喜欢读书，也喜欢音乐。"
    page.fill("input[type=text]", text)
    page.keyboard.press("Enter")
    page.wait_for_function("() => window.streamed")
    page.wait_for_function("() => document.querySelectorAll('g.target').length > 4")
    settle(page)
    assert requests == ["/translate/stream"]  # the trace is of the same search
    translation = api.post("/translate", json={"q": text, "source": "zh", "target": "en", "beam": 5}).json()[
        "translatedText"
    ]
    words_shown = "".join(page.locator("g.target text").all_text_contents())
    assert words_shown == translation.replace(" ", "")
    assert parameters(page)["text"] == [text]


def test_model_and_beam_size_are_selected(visit):
    page = visit()
    page.get_by_label("Beam").select_option("1")
    settle(page)
    page.get_by_label("Model").select_option("en-zh")
    settle(page)
    page.fill("input[type=text]", "I like music.")
    page.keyboard.press("Enter")
    page.wait_for_function("() => /音乐/.test(document.querySelector('[data-picture=translation]')?.textContent ?? '')")
    settle(page)
    assert parameters(page) == {"beam": ["1"], "model": ["en-zh"], "text": ["I like music."]}


def test_errors_of_the_server_are_shown(visit):
    page = visit()
    page.fill("input[type=text]", " ? " * 3)
    page.route("**/translate/stream", lambda route: route.fulfill(status=413, json={"error": "too long, got 9"}))
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("too long, got 9")
    visit.errors.clear()  # the browser writes refused requests to its console
