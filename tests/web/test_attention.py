"""Attention: lines, all heads, one head, two runs side by side."""

import numpy as np
import pytest

from tests.web.conftest import expect, expect_url, settle
from tests.web.expected import cross_attention, label, short, weights

PIXEL = """(canvas, [x, y]) => [...canvas.getContext('2d').getImageData(
    Math.floor(x * canvas.width), Math.floor(y * canvas.height), 1, 1).data.slice(0, 3)]"""


def ramp(page) -> list[list[int]]:
    """Read the colours of weights 0, 0.05 … 1 from the colour scale of a heatmap."""
    colours = page.locator(".scale i").evaluate_all("all => all.map(i => getComputedStyle(i).backgroundColor)")
    return [[int(part) for part in colour[4:-1].split(",")] for colour in colours[:8]]


def test_lines_are_the_weights_of_the_heads(visit, xian, picture):
    page, expected = visit("view=attention&unit=token"), weights(xian, "cross")
    drawn = page.locator("g.lines line")
    expect(drawn).to_have_count(int((expected[0] >= 0.03).sum()))
    values = [float(each) for each in drawn.evaluate_all("all => all.map(line => line.dataset.weight)")]
    expected = np.sort(expected[0][expected[0] >= 0.03])
    assert values == pytest.approx(expected.tolist(), abs=1e-4)
    picture(page, "lines")


def test_heads_are_switched_off_and_on(visit, xian):
    page, expected = visit("view=attention&unit=token&layer=1"), weights(xian, "cross")[1]
    page.get_by_role("button", name="Head 2").click()
    expect(page.locator("line[data-head='2']")).to_have_count(0)
    expect_url(page, "off=2")
    page.get_by_role("button", name="All", exact=True).click()
    expect(page.locator("line[data-head='2']")).to_have_count(int((expected[2] >= 0.03).sum()))
    page.get_by_role("button", name="Head 4").dblclick()
    expect(page.locator("g.lines line")).to_have_count(int((expected[4] >= 0.03).sum()))


def test_a_word_in_focus_shows_only_its_lines(visit, xian, picture):
    page, expected = visit("view=attention&unit=token"), weights(xian, "cross")[0]
    page.locator("text.word[data-side=query]").nth(3).hover()
    expect(page.locator("g.lines line")).to_have_count(int((expected[:, 3] >= 0.005).sum()))
    mean = expected[:, 3].mean(0)
    best = xian["source"]["pieces"][int(mean.argmax())]
    readout = page.locator("[data-picture^=lines] [aria-live]").inner_text()
    assert f"{label(best)} {short(mean.max(), 2)}" in readout
    picture(page, "lines-word")


@pytest.mark.parametrize("density", [1, 2])
def test_all_heads_are_painted(visit, xian, picture, density):
    page, expected = visit("view=attention&form=all&kind=encoder&unit=token", density=density), weights(xian, "encoder")
    layers, heads, queries, keys = expected.shape
    expect(page.locator("canvas")).to_have_count(layers * heads)
    colours = ramp(page)
    for layer, head in [(0, 0), (3, 2), (5, 5)]:
        canvas = page.locator(f"[data-layer='{layer}'][data-head='{head}'] canvas")
        canvas.scroll_into_view_if_needed()
        page.wait_for_function(
            "([l, h]) => document.querySelector(`[data-layer='${l}'][data-head='${h}'] canvas`).width > 50",
            arg=[layer, head],
        )
        box = canvas.bounding_box()
        assert canvas.evaluate("c => c.width") == round(density * box["width"])
        q, k = np.unravel_index(expected[layer, head].argmax(), (queries, keys))
        dark = canvas.evaluate(PIXEL, [(k + 0.5) / keys, (q + 0.5) / queries])
        q, k = np.unravel_index(expected[layer, head].argmin(), (queries, keys))
        light = canvas.evaluate(PIXEL, [(k + 0.5) / keys, (q + 0.5) / queries])
        assert sum(dark) < sum(light)
        assert sum(colours[-1]) - 3 <= sum(dark) and sum(light) <= sum(colours[0])
    picture(page, f"all-heads-{density}")


def test_a_heatmap_opens_its_head(visit):
    page = visit("view=attention&form=all&kind=encoder")
    page.get_by_role("button", name="Open layer 2, head 1").click()
    settle(page)
    expect(page.get_by_role("heading", name="Layer 2, head 1")).to_be_visible()
    expect_url(page, "form=one", "layer=2", "head=1")


def test_one_head_has_its_numbers(visit, api, xian, picture):
    page = visit("view=attention&form=one&kind=encoder&layer=0&head=3&unit=token")
    head = api.get(f"/trace/{xian['id']}/head", params={"kind": "encoder", "layer": 0, "head": 3}).json()
    chart = page.get_by_role("application", name="Layer 0, head 3")
    chart.focus()
    live = page.locator("[data-picture=head-encoder-0-3] [aria-live]")
    for row in range(3):
        page.keyboard.press("ArrowDown" if row else "Home")
        tokens = label(head["queries"][row]), label(head["keys"][0])
        expect(live).to_have_text(f"{tokens[0]} → {tokens[1]}: {short(head['weights'][row][0], 4)}")
    picture(page, "one-head")


def test_scores_are_the_sum_of_their_terms(visit, api, xian):
    page = visit("view=attention&form=one&kind=encoder&layer=0&head=3&unit=token")
    head = api.get(f"/trace/{xian['id']}/head", params={"kind": "encoder", "layer": 0, "head": 3}).json()
    frame = page.locator("[data-picture=terms-encoder-0-3]")
    expect(frame.locator("canvas")).to_have_count(1 + len(head["terms"]))
    frame.get_by_role("application").nth(1).focus()
    page.keyboard.press("End")
    expected = frame.locator("[aria-live]").all_text_contents()
    numbers = [float(text.rsplit(" ", 1)[1].replace("−", "-")) for text in expected]
    assert numbers[0] == pytest.approx(head["scores"][-1][-1], abs=1e-3)
    assert sum(numbers[1:]) == pytest.approx(numbers[0], abs=1e-3)
    assert numbers[1:] == pytest.approx([term["values"][-1][-1] for term in head["terms"]], abs=1e-3)


def test_two_sentences_are_compared(visit, picture):
    page = visit("view=attention&kind=encoder&form=all")
    page.get_by_label("Compare").check()
    page.get_by_label("Second sentence").fill("我喜欢音乐。")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('section.card').length === 2")
    settle(page)
    page.wait_for_function("() => /I like music/.test(document.querySelectorAll('section.card')[1].textContent)")
    expect_url(page, "text2=")
    picture(page, "compare")


def test_two_models_are_compared(visit):
    page = visit("view=attention&compare=true&model=zh-en&model2=en-zh&text2=I+like+music.")
    page.wait_for_function("() => document.querySelectorAll('section.card').length === 2")
    expect(page.locator("section.card").nth(1).locator("b")).to_have_text("en-zh")


def test_a_recurrent_model_shows_its_one_head(visit, api, picture):
    text = "我昨天在图书馆看到了你的朋友。"
    expected = api.post("/trace", json={"text": text, "beam": 5, "model": "zh-en-recurrent"}).json()
    page = visit(f"view=attention&model=zh-en-recurrent&text={text}")
    for kind in ("Encoder self-attention", "Decoder self-attention"):
        expect(page.get_by_role("radio", name=kind)).to_be_disabled()
    expect(page.get_by_role("radio", name="Cross-attention")).to_be_checked()
    cross = weights(expected, "cross")
    assert cross.shape[:2] == (1, 1)
    page = visit(f"model=zh-en-recurrent&text={text}")
    expect(page.get_by_text("This model has a single head.")).to_be_visible()
    expect(page.locator(".curves path")).to_have_count(int((cross_attention(expected, aligned=False) >= 0.1).sum()))
    picture(page, "translate-recurrent")


def test_colours_are_scaled_to_the_largest_weight(visit, xian):
    page, expected = visit("view=attention&form=all&kind=encoder&unit=token"), weights(xian, "encoder")
    layer, head = np.unravel_index(expected.max(axis=(2, 3)).argmin(), expected.shape[:2])
    q, k = np.unravel_index(expected[layer, head].argmax(), expected.shape[2:])
    centre = [(k + 0.5) / expected.shape[3], (q + 0.5) / expected.shape[2]]
    canvas = page.locator(f"[data-layer='{layer}'][data-head='{head}'] canvas[data-painted]")
    before, strongest = canvas.evaluate(PIXEL, centre), ramp(page)[-1]
    assert sum(before) > sum(strongest) + 30
    page.get_by_role("radio", name="0 to max").check()
    expect_url(page, "scale=own")
    assert canvas.evaluate(PIXEL, centre) == pytest.approx(strongest, abs=2)
