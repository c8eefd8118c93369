"""The search tree, and the attention of each hypothesis."""

import math

import pytest

from tests.web.conftest import expect, expect_url, settle
from tests.web.expected import cross_attention, label, short, words


def test_the_tree_holds_what_the_search_kept(visit, xian, picture):
    page, nodes = visit("view=beam"), xian["tree"]["nodes"]
    kept = {node["number"]: label(node["piece"]) for node in nodes if node["fate"] != "dropped"}
    drawn = page.locator("g.node").evaluate_all(
        "all => all.map(g => [+g.dataset.node, g.querySelector('text').textContent])"
    )
    assert dict(drawn) == kept
    expect(page.locator(".edges path")).to_have_count(len(kept))
    picture(page, "beam")
    page.get_by_label("Show pruned hypotheses").check()
    expect(page.locator("g.node")).to_have_count(len(nodes))
    expect_url(page, "pruned=true")
    picture(page, "beam-all")


def test_each_token_shows_its_probabilities(visit, xian):
    page, best = visit("view=beam"), xian["tree"]["best_path"]
    for number in best[:3]:
        node = xian["tree"]["nodes"][number]
        page.locator(f"g.node[data-node='{number}']").hover()
        probability, total = (round(100 * math.exp(node[name])) for name in ("gain", "total"))
        expected = f"{label(node['piece'])} {probability} % · cumulative {total} % · {node['fate']}"
        expect(page.locator("[data-picture=beam] [aria-live]")).to_have_text(expected)


def test_hypotheses_are_ranked_as_the_search_ranks_them(visit, xian):
    page, leaves = visit("view=beam"), xian["tree"]["leaves"]
    rows = page.locator("tbody tr").all()
    assert len(rows) == len(leaves)
    for row, leaf in zip(rows, leaves, strict=True):
        texts = row.locator("td").all_text_contents()
        assert texts[1].startswith(leaf["text"])
        assert texts[2] == short(leaf["score"], 3)


def test_a_hypothesis_shows_its_attention(visit, api, xian, picture):
    page, second = visit("view=beam"), xian["tree"]["leaves"][1]
    page.get_by_role("button", name=f"Show “{second['text']}”").first.click()
    page.wait_for_function("() => document.querySelectorAll('[data-picture=hypothesis] g.target').length > 2")
    settle(page)
    expected = api.get(f"/trace/{xian['id']}", params={"node": second["node"]}).json()
    expect(page.locator("g.target text")).to_have_text([word["text"] for word in words(expected["target"])])
    page.locator("g.target").nth(1).hover()
    drawn = [float(each.get_attribute("data-weight")) for each in page.locator("g.source").all()]
    assert drawn == pytest.approx(cross_attention(expected)[1].tolist(), abs=2e-4)
    expect_url(page, f"node={second['node']}")
    picture(page, "beam-second")


def test_a_token_of_the_tree_is_selected_by_keyboard(visit, xian):
    page = visit("view=beam")
    page.locator("g.node[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect_url(page, "node=")


def test_beam_size_1_is_greedy_search(visit):
    page = visit("view=beam&beam=1")
    expect(page.get_by_text("greedy search")).to_be_visible()


def test_a_trace_that_the_server_dropped_is_computed_again(visit, xian):
    page = visit("view=beam")
    requests = []

    def forget(route):
        requests.append(route.request.url)
        if len(requests) == 1:
            return route.fulfill(status=404, json={"error": "no such trace"})
        return route.continue_()

    page.route("**/trace/*?*", forget)
    second = xian["tree"]["leaves"][1]["text"]
    page.get_by_role("button", name=f"Show “{second}”").first.click()
    page.wait_for_function(
        "text => document.querySelector('[data-picture=hypothesis]').textContent.includes(text)", arg=second
    )
    assert len(requests) == 2
    visit.errors.clear()  # the browser writes refused requests to its console
