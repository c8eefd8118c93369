"""The search tree, and what each hypothesis looked at."""

import math

import pytest

from tests.web.conftest import expect, expect_address, settle
from tests.web.told import shares, short, shown, words


def test_the_tree_holds_what_the_search_kept(visit, xian, picture):
    page, nodes = visit("view=beam"), xian["tree"]["nodes"]
    kept = {node["number"]: shown(node["piece"]) for node in nodes if node["fate"] != "dropped"}
    drawn = page.locator("g.spot").evaluate_all(
        "all => all.map(g => [+g.dataset.node, g.querySelector('text').textContent])"
    )
    assert dict(drawn) == kept
    expect(page.locator(".branches path")).to_have_count(len(kept))
    picture(page, "beam")
    page.get_by_label("Show pruned hypotheses").check()
    expect(page.locator("g.spot")).to_have_count(len(nodes))
    expect_address(page, "pruned=true")
    picture(page, "beam-all")


def test_each_piece_tells_its_numbers(visit, xian):
    page, best = visit("view=beam"), xian["tree"]["best_path"]
    for number in best[:3]:
        node = xian["tree"]["nodes"][number]
        page.locator(f"g.spot[data-node='{number}']").hover()
        share, total = (round(100 * math.exp(node[name])) for name in ("gain", "total"))
        told = f"{shown(node['piece'])} {share} % · cumulative {total} % · {node['fate']}"
        expect(page.locator("[data-picture=beam] [aria-live]")).to_have_text(told)


def test_hypotheses_are_ranked_as_the_search_ranks_them(visit, xian):
    page, leaves = visit("view=beam"), xian["tree"]["leaves"]
    rows = page.locator("tbody tr").all()
    assert len(rows) == len(leaves)
    for row, leaf in zip(rows, leaves, strict=True):
        texts = row.locator("td").all_text_contents()
        assert texts[1].startswith(leaf["text"])
        assert texts[2] == short(leaf["score"], 3)


def test_a_hypothesis_shows_what_it_looked_at(visit, api, xian, picture):
    page, second = visit("view=beam"), xian["tree"]["leaves"][1]
    page.get_by_role("button", name=f"Show “{second['text']}”").first.click()
    page.wait_for_function("() => document.querySelectorAll('[data-picture=hypothesis] g.target').length > 2")
    settle(page)
    told = api.get(f"/trace/{xian['id']}", params={"node": second["node"]}).json()
    expect(page.locator("g.target text")).to_have_text([word["text"] for word in words(told["target"])])
    page.locator("g.target").nth(1).hover()
    drawn = [float(each.get_attribute("data-share")) for each in page.locator("g.source").all()]
    assert drawn == pytest.approx(shares(told)[1].tolist(), abs=2e-4)
    expect_address(page, f"node={second['node']}")
    picture(page, "beam-second")


def test_a_piece_of_the_tree_opens_by_keyboard(visit, xian):
    page = visit("view=beam")
    page.locator("g.spot[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect_address(page, "node=")


def test_greedy_has_nothing_to_search(visit):
    page = visit("view=beam&beam=1")
    expect(page.get_by_text("greedy search")).to_be_visible()


def test_a_run_that_the_server_forgot_is_made_again(visit, xian):
    page = visit("view=beam")
    asked = []

    def forget(route):
        asked.append(route.request.url)
        if len(asked) == 1:
            return route.fulfill(status=404, json={"error": "no such trace"})
        return route.continue_()

    page.route("**/trace/*?*", forget)
    second = xian["tree"]["leaves"][1]["text"]
    page.get_by_role("button", name=f"Show “{second}”").first.click()
    page.wait_for_function(
        "text => document.querySelector('[data-picture=hypothesis]').textContent.includes(text)", arg=second
    )
    assert len(asked) == 2
    visit.wrong.clear()  # the browser writes refused requests to its console
