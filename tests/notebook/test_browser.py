"""The widget in a real browser, loaded as anywidget loads it."""

import pytest

import regard
from regard.notebook.display import MODULE, make_widget
from regard.serve.serialize import dequantize, quantize
from tests.web.conftest import Visits, chromium, expect, picture, settle  # noqa: F401

# A notebook's cell, and what anywidget does in it: the module comes from memory, the traits from a model.
SHOW = """async ({ esm, traits }) => {
  document.body.innerHTML = '<div id="cell" style="width: 900px"></div>';
  const module = await import(URL.createObjectURL(new Blob([esm], { type: 'text/javascript' })));
  const model = { get: (name) => traits[name], set() {}, save_changes() {}, on() {}, off() {} };
  window.close_cell = await (module.default ?? module).render({ model, el: document.getElementById('cell') });
}"""
COLOURS = """(canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


@pytest.fixture
def cell(chromium):  # noqa: F811
    """Shows a trace as a notebook would."""
    if not MODULE.is_file():
        pytest.skip("THE WIDGET WAS NOT TRIED IN A BROWSER: the page is not built; make page")
    visits = Visits(chromium, "about:blank")

    def show(trace, address=""):
        widget = make_widget(trace, address)
        page = visits.context().new_page()
        page.evaluate(SHOW, {"esm": widget._esm, "traits": {"saved": widget.saved, "address": widget.address}})
        settle(page)
        return page

    yield show
    for context in visits.contexts:
        context.close()
    assert not visits.errors, visits.errors


@pytest.fixture(scope="module")
def run():
    """The worked example, by the bundled model."""
    return regard.trace(regard.load("zh-en"), "介绍一下西安")


def texts(page, places):
    return [text.strip() for text in page.locator(places).all_text_contents()]


def test_a_trace_shows_its_words(cell, run, picture):  # noqa: F811
    page = cell(run)
    shown = page.locator("main").inner_text()
    for word in ("介绍", "一下", *run.output.split()):
        assert word in shown
    picture(page, "notebook-words")


def test_head_view_draws_lines_as_strong_as_the_weights(cell, run, displayed, picture):  # noqa: F811
    regard.head_view(run, layer=1, heads=[2])
    page = cell(run, displayed[0].address.replace("unit=word", "unit=piece"))
    lines = page.locator(".lines line")
    lines.first.wait_for(state="attached")
    drawn = [(line.get_attribute("data-head"), float(line.get_attribute("data-weight"))) for line in lines.all()]
    sent = dequantize(quantize(run.cross[1].weights(2).numpy())).flatten().tolist()  # a byte stands for each weight
    assert {head for head, _ in drawn} == {"2"}
    strong = sorted(weight for weight in sent if weight > 0.1)
    assert sorted(weight for _, weight in drawn if weight > 0.1) == pytest.approx(strong, abs=1e-4)
    picture(page, "notebook-head-view")


def test_model_view_draws_a_map_for_each_head(cell, run, displayed, picture):  # noqa: F811
    regard.model_view(run)
    page = cell(run, displayed[0].address)
    maps = page.locator("button[data-layer] canvas")
    maps.first.wait_for()
    expect(maps).to_have_count(sum(look.n_heads for look in run.cross))
    assert min(canvas.evaluate(COLOURS) for canvas in maps.all()) > 3, "a map is empty"
    picture(page, "notebook-model-view")


def test_other_people_s_words_stand_at_both_sides(cell, run, displayed):
    tokens = [f"word{i}" for i in range(len(run.source))]
    regard.head_view(run.to_hf().encoder_attentions, tokens)
    page = cell(displayed[0].trace, displayed[0].address)
    page.locator(".lines line").first.wait_for(state="attached")
    assert texts(page, "text.word") == tokens * 2


def test_a_notebook_s_own_keys_do_nothing_inside(cell, run):
    """JupyterLab leaves keys alone where this mark is on the element with the focus itself."""
    page = cell(run, "view=attention&form=lines")
    page.locator("text.word").first.focus()
    assert page.evaluate("() => document.activeElement.hasAttribute('data-lm-suppress-shortcuts')")


def test_a_cell_can_be_cleared(cell, run):
    page = cell(run)
    page.evaluate("() => window.close_cell()")
    assert page.locator("#cell").inner_text().strip() == ""


def test_a_returned_page_opens_by_itself(cell, run, tmp_path):
    file = tmp_path / "view.html"
    file.write_text(regard.head_view(run, layer=1, html_action="return").data, encoding="utf-8")
    page = cell(run).context.new_page()
    page.goto(file.as_uri())
    settle(page)
    assert page.locator(".lines line").first.get_attribute("data-head") is not None
    expect(page.locator("main")).to_contain_text("介绍")
