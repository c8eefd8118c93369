"""What holds for every view: languages, themes, keyboard, narrow screens, URLs, saved files, no other server."""

import json
import re
from base64 import b64decode
from pathlib import Path
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest

from regard.qa.data import make_question
from regard.qa.predict import answer_questions
from regard.qa.view import trace_answer
from regard.serve.serialize import render_html
from tests.readers import CONTEXTS, small_reader
from tests.web.conftest import ROOT, WIDE_WINDOWS, expect, settle

QUESTION = {"context": CONTEXTS["en"], "question": "Who built his court there?"}
VIEWS = {
    "translate": "",
    "lines": "view=attention",
    "all": "view=attention&form=all&kind=encoder",
    "one": "view=attention&form=one&kind=encoder",
    "beam": "view=beam",
    "positions": "view=positions",
    "regression": "view=regression",
    "steps": "view=steps&stage=7",
    "generate": "view=generate&prompt=abc+fed&maxTokens=40",
    "answers": f"view=answers&{urlencode(QUESTION)}",
    "studies": "view=studies",
}
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
PNG = b"\x89PNG\r\n"


# The focused element, marked as seen, and whether its focus is visible: an outline, or a thick frame.
FOCUSED = """() => {
    const e = document.activeElement, outlined = (x) => x && getComputedStyle(x).outlineStyle !== 'none';
    const framed = e.tagName === 'g' && getComputedStyle(e.querySelector('rect')).strokeWidth === '3px';
    e.dataset.seen ??= Math.random();
    return [e.dataset.seen, e.tagName, outlined(e) || outlined(e.closest('label')) || framed];
}"""


def ready(page) -> None:
    settle(page)
    page.wait_for_selector("[data-picture], .answer")


@pytest.mark.parametrize(("dark", "locale"), [(False, "en-US"), (True, "zh-CN")], ids=["light-en", "dark-zh"])
@pytest.mark.parametrize("name", VIEWS)
def test_views_are_accessible(visit, picture, name, dark, locale):
    """Contrast, names and roles, checked by axe-core; and nothing is wider than the window."""
    page = visit(VIEWS[name], dark=dark, locale=locale)
    ready(page)
    picture(page, f"{name}-{'dark' if dark else 'light'}-{locale[:2]}")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    if not AXE.is_file():
        pytest.skip("axe-core is installed with the page's sources: npm ci in web/")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    violations = page.evaluate("async () => (await axe.run()).violations")
    report = [
        f"{each['id']}: {each['help']} {[node['html'][:120] for node in each['nodes'][:3]]}" for each in violations
    ]
    assert not report


@pytest.mark.parametrize("name", VIEWS)
def test_views_fit_a_narrow_screen(visit, picture, name):
    page = visit(VIEWS[name], narrow=True)
    ready(page)
    picture(page, f"{name}-narrow")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("name", VIEWS)
def test_the_keyboard_reaches_everything(visit, name):
    """Tab reaches every control, or the grid in which arrow keys reach it, and the focus is visible."""
    page = visit(VIEWS[name])
    ready(page)
    seen = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        key, tag, visible = page.evaluate(FOCUSED)
        if tag == "BODY" or key in seen:
            break
        seen.add(key)
        assert visible, tag
    missed = page.evaluate(
        """() => [...document.querySelectorAll('button, a, input, select, [role=button], [role=application]')]
        .filter(e => !e.disabled && !e.dataset.seen && !e.hasAttribute('data-cell'))
        .filter(e => !(e.type === 'radio' && !e.checked)).map(e => e.outerHTML.slice(0, 120))"""
    )
    assert not missed
    grids = page.evaluate(
        """() => [...document.querySelectorAll('[data-cell]')].filter(e => e.tabIndex === 0 && !e.disabled).length"""
    )
    assert grids >= page.evaluate("() => document.querySelector('[data-cell]:not([disabled])') ? 1 : 0")


def test_language_and_theme_are_switched(visit):
    page = visit()
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading", name="每个译文词关注哪些源词")).to_be_visible()
    assert page.locator(".regard").get_attribute("lang") == "zh-Hans"
    page.get_by_role("button", name="深色主题").click()
    assert "dark" in page.locator(".regard").get_attribute("class")
    expect(page).to_have_url(re.compile("#lang=zh&theme=dark$"))


def test_a_view_is_shared_by_its_url(visit):
    page = visit()
    page.get_by_role("button", name="Attention", exact=True).click()
    page.get_by_role("radio", name="Encoder self-attention").check()
    page.get_by_role("radio", name="All heads").check()
    page.get_by_role("button", name="Open layer 4, head 2").click()
    page.get_by_role("radio", name="Tokens").check()
    settle(page)
    other = visit.open(page.url)
    expect(other.get_by_role("heading", name="Layer 4, head 2")).to_be_visible()
    expect(other.get_by_role("radio", name="Tokens")).to_be_checked()


def test_links_of_earlier_versions_still_open(visit):
    page = visit("view=write&prompt=abc+fed&pieces=30&chance=1&writeFrom=1")
    ready(page)
    expect(page.get_by_role("group", name="Heads").get_by_role("radio", name="Layer 1")).to_be_checked()
    now = "view=generate&prompt=abc+fed&maxTokens=30&generate.seed=1&generate.heads=1"
    expect(page).to_have_url(re.compile(re.escape(now) + "$"))


def test_the_back_button_returns_to_the_previous_view(visit):
    page = visit()
    page.get_by_role("button", name="Beam search").click()
    page.get_by_label("Show pruned hypotheses").check()
    page.get_by_role("button", name="Positions").click()
    expect(page).to_have_title("Regard · Positions")
    page.go_back()
    expect(page.get_by_label("Show pruned hypotheses")).to_be_checked()
    page.go_back()
    expect(page.get_by_role("heading", name="What each output word attends to")).to_be_visible()
    page.go_forward()
    expect(page).to_have_title("Regard · Beam search")


def saved(page, button) -> Path:
    with page.expect_download() as waiting:
        button.click()
    return Path(waiting.value.path())


@pytest.mark.parametrize("name", VIEWS)
def test_every_picture_can_be_saved(visit, name):
    page = visit(VIEWS[name])
    ready(page)
    frames = page.locator("[data-picture]").all()
    for frame in frames:
        root = ElementTree.fromstring(saved(page, frame.get_by_role("button", name="Save as SVG")).read_bytes())
        assert len(list(root.iter())) > 5
        texts = "".join(each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text"))
        assert texts or name == "regression"
        canvases = frame.locator("canvas").count()
        images = list(root.iter("{http://www.w3.org/2000/svg}image"))
        assert len(images) == canvases
        for image in images:  # also those not yet scrolled into view
            pixels = b64decode(image.get("href").split(",")[1])
            assert int.from_bytes(pixels[16:20]) == round(float(image.get("width")))
        assert "var(--" not in ElementTree.tostring(root, encoding="unicode")
        assert saved(page, frame.get_by_role("button", name="Save as PNG")).read_bytes().startswith(PNG)


def test_a_view_is_saved_as_one_file_that_opens_offline(visit, picture, tmp_path):
    page = visit("view=attention&form=one&kind=encoder&layer=2&unit=token")
    ready(page)
    page.wait_for_selector("[data-picture^=terms]")
    file = tmp_path / "regard.html"
    file.write_bytes(saved(page, page.get_by_role("button", name="HTML")).read_bytes())
    text = file.read_text(encoding="utf-8")
    assert "src=" not in text.split("<script")[0] and "http://127" not in text
    context = visit.context()
    context.set_offline(True)
    alone = context.new_page()
    alone.goto(file.as_uri())
    alone.wait_for_selector("[data-picture^=terms]")
    names = alone.get_by_role("navigation").get_by_role("button").all_inner_texts()
    assert names == ["Translate", "Attention", "Beam search"]
    expect(alone.get_by_role("heading", name="Layer 2, head 0")).to_be_visible()
    alone.get_by_role("radio", name="Words").check()
    alone.get_by_role("button", name="Translate").click()
    assert alone.locator("g.target text").all_text_contents() == page_words(visit)
    alone.get_by_role("button", name="Beam search").click()
    assert alone.locator("g.node").count() > 10
    picture(alone, "saved-file")


def page_words(visit) -> list[str]:
    return visit().locator("g.target text").all_text_contents()


def test_two_runs_are_saved_together(visit, tmp_path):
    page = visit("view=attention&compare=true&text2=我喜欢音乐。")
    page.wait_for_function("() => document.querySelectorAll('section.card').length === 2")
    file = tmp_path / "two.html"
    file.write_bytes(saved(page, page.get_by_role("button", name="HTML")).read_bytes())
    alone = visit.open(file.as_uri())
    alone.wait_for_function("() => document.querySelectorAll('section.card').length === 2")
    expect(alone.locator("section.card").nth(1)).to_contain_text("I like music.")


def test_a_notebook_draws_the_same_view(visit, url, xian, picture):
    """As anywidget does: import the module, and call `render` with a model and an element."""
    page = visit()
    page.evaluate(
        """async ([saved, address]) => {
            const { default: widget } = await import('./widget.js?notebook');
            const el = document.createElement('div');
            el.id = 'cell';
            document.body.replaceChildren(el);
            const values = { saved, address };
            widget.render({ model: { get: (name) => values[name] }, el });
        }""",
        [json.dumps({"views": [{**xian, "id": None}], "heads": []}), "view=attention&form=all"],
    )
    page.wait_for_selector("#cell canvas")
    expect(page.locator("#cell canvas")).to_have_count(12)
    assert "#" not in page.url
    picture(page, "notebook")


def test_a_request_to_another_server_is_noticed(visit):
    """The fixture fails on any request that leaves the machine; this test proves it."""
    page = visit()
    page.evaluate("() => fetch('https://example.org/').catch(() => {})")
    assert any("left the machine" in each or "Content Security" in each for each in visit.errors)
    visit.errors.clear()


@pytest.mark.parametrize("works", [True, False])
def test_a_link_is_copied_or_the_page_says_that_it_is_not(visit, works):
    context = visit.context()
    # As over plain HTTP, where browsers offer no clipboard.
    context.add_init_script(
        "Object.defineProperty(navigator, 'clipboard', {value: undefined});"
        f"document.execCommand = (name) => {{ window.asked = name; return {str(works).lower()}; }};"
    )
    page = context.new_page()
    page.goto(visit.url)
    settle(page)
    page.get_by_role("button", name="Link").click()
    expect(page.get_by_role("button", name="Copied" if works else "Copy the address bar")).to_be_visible()
    assert page.evaluate("() => window.asked") == "copy"


def test_a_saved_trace_without_a_decoder_opens_where_there_is_something_to_see(visit, tmp_path):
    reader = small_reader(windows=WIDE_WINDOWS)
    question = make_question("q", QUESTION["question"], QUESTION["context"], [], "here")
    (answers,) = answer_questions(reader, [question], 1)
    file = tmp_path / "reader.html"
    file.write_text(render_html(trace_answer(reader, question, answers.spans[0]).trace), "utf-8")
    page = visit.open(file.as_uri())
    expect(page.get_by_role("button", name="Attention", exact=True)).to_have_attribute("aria-current", "page")
    expect(page.locator("[data-picture]").first).to_be_visible()
