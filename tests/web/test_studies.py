"""Studies: the table sorts by any column, and the curves are those of the runs."""

import pytest

from tests.serve.planted import BLEU
from tests.web.conftest import expect, expect_url

MEANS = {name: sum(each) / 2 for name, each in BLEU.items()}


def variants(page) -> list[str]:
    return [row.get_attribute("data-variant") for row in page.locator("tbody tr").all()]


@pytest.fixture
def page(visit):
    page = visit("view=studies")
    page.wait_for_selector("[data-picture^=study]")
    return page


def test_the_table_has_the_means_of_all_seeds(page, picture):
    row = page.locator("tr[data-variant='rotary positions'] td")
    expect(row).to_have_text(
        ["rotary positions", "34.00 ± 1.41", "+3.00", "4.48 ± 0.00", "50,500 ± 707", "1,234,567", "position"]
    )
    expect(page.locator("tr[data-variant=broken]")).to_contain_text("unknown norm 'odd'")
    picture(page, "studies")


def test_columns_sort_in_either_order_with_failed_runs_last(page):
    best = sorted(MEANS, key=lambda name: -MEANS[name])
    assert variants(page) == [*best, "broken"]
    page.get_by_role("button", name="BLEU").click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_count(1)
    assert variants(page) == [*best[::-1], "broken"]
    page.get_by_role("button", name="Variant").click()
    expect_url(page, "sort=variant", "ascending=true")
    assert variants(page) == sorted([*MEANS, "broken"])


def test_significant_differences_are_marked(page):
    expect(page.locator("tr[data-variant='no positions'] td.clear.worse")).to_have_text("−18.50")
    expect(page.locator("tr[data-variant='16 heads'] td.clear")).to_have_count(0)


def test_a_variant_is_plotted_with_the_baseline(page):
    lines = page.locator("[data-line]")
    expect(lines).to_have_count(2)
    assert [line.get_attribute("data-line") for line in lines.all()] == ["baseline", "rotary positions"]
    page.get_by_role("button", name="no positions").click()
    expect(page.locator("[data-line='no positions']")).to_have_count(1)
    expected = page.locator("[data-picture=study-bleu] [aria-live]")
    expect(expected).to_have_text(f"baseline: {MEANS['baseline']:.2f} · no positions: {MEANS['no positions']:.2f}")
    page.get_by_role("radio", name="Loss").check()
    expect(page.locator("[data-picture=study-loss] [aria-live]")).to_have_text("baseline: 3.00 · no positions: 3.00")


def test_without_a_study_the_page_says_how_to_make_one(visit):
    context = visit.context()
    page = context.new_page()
    page.route("**/studies", lambda route: route.fulfill(json={"studies": []}))
    page.goto(visit.url + "#view=studies")
    expect(page.get_by_text("regard study ablate --quick")).to_be_visible()
