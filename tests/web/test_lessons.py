"""Positions, kernel regression, and one layer step by step."""

import re

import pytest

from tests.web.conftest import expect, settle
from tests.web.expected import label, short


def path_ends(page, selector: str) -> list[list[float]]:
    """Return the points of a curve."""
    drawn = page.locator(selector).get_attribute("d")
    return [[float(part) for part in point.split(",")] for point in re.split("[ML]", drawn)[1:]]


def heights(page, curve: str, ticks: str) -> list[float]:
    """Read the y-values of a curve in the units of its axis."""
    labels = page.locator(f"{ticks} .axes text[text-anchor=end][dominant-baseline=central]").all()
    values = [float(each.text_content().replace("−", "-")) for each in labels]
    ys = [float(each.get_attribute("y")) for each in labels]
    scale = (values[-1] - values[0]) / (ys[-1] - ys[0])
    return [values[0] + (y - ys[0]) * scale for _, y in path_ends(page, curve)]


@pytest.mark.parametrize("scheme", ["sinusoidal", "normalised", "alibi", "learned", "none"])
def test_properties_are_those_the_server_measured(visit, api, picture, scheme):
    page = visit("view=positions")
    page.get_by_role("combobox", name="Encoding").select_option(scheme)
    settle(page)
    expected = api.get("/positions", params={"scheme": scheme, "length": 64, "width": 32}).json()
    page.wait_for_function("name => document.querySelector(`[data-picture='profile-${name}']`)", arg=scheme)
    drawn = page.locator("tr[data-law]").evaluate_all("all => all.map(tr => [tr.dataset.law, tr.dataset.holds])")
    holds = {True: "true", False: "false", None: None}
    assert drawn == [[law["name"], holds[law["holds"]]] for law in expected["laws"]]
    curve = heights(page, "[data-curve=profile]", "[data-picture^=profile]")
    span = max(map(abs, expected["profile"])) or 1
    assert curve == pytest.approx(expected["profile"], abs=0.01 * span)
    picture(page, f"positions-{scheme}")


def test_length_and_width_are_moved_by_sliders(visit, api):
    page = visit("view=positions")
    page.get_by_role("slider", name="Dimensions").fill("16")
    page.get_by_role("slider", name="Length").focus()
    with page.expect_response(lambda answer: "width=16" in answer.url and "length=64&" not in answer.url):
        page.keyboard.press("ArrowRight")
    settle(page)
    length = int(re.search(r"length=(\d+)", page.url)[1])
    assert length > 64 and "width=16" in page.url
    expected = api.get("/positions", params={"length": length, "width": 16}).json()
    codes = page.get_by_role("application", name="Encoding vectors")
    codes.focus()
    page.keyboard.press("End")
    last = expected["codes"][-1][-1]
    expected = f"position {length - 1}, dimension 15: {short(last, 4)}"
    expect(page.locator("[data-picture^=codes] [aria-live]")).to_have_text(expected)


def test_encodings_are_reordered_and_joined_to_embeddings(visit, api, picture):
    page = visit("view=positions&width=8")
    page.get_by_role("radio", name="Sines, then cosines").check()
    labels = page.locator("[data-picture^=codes] svg text[text-anchor=middle]").all_text_contents()
    assert labels == ["0", "2", "4", "6", "1", "3", "5", "7"]
    expected = api.get("/positions", params={"width": 8}).json()
    page.get_by_role("radio", name="Concatenate").check()
    page.get_by_role("application", name="Addition or concatenation").focus()
    page.keyboard.press("Home")
    live = page.locator("[data-picture^=join] [aria-live]")
    expect(live).to_have_text(f"0, embedding 0: {short(expected['words'][0][0], 4)}")
    expect(page.locator("[data-picture^=join]")).to_contain_text(
        f"{expected['cost']['layer_concatenated']:,} parameters"
    )
    page.get_by_role("radio", name="Add", exact=True).check()
    page.get_by_role("application", name="Addition or concatenation").focus()
    page.keyboard.press("Home")
    expect(live).to_have_text(f"0, sum 0: {short(expected['words'][0][0] + expected['codes'][0][0], 4)}")
    picture(page, "positions-halves")


def test_the_shift_matrix_moves_an_encoding(visit, api):
    page = visit("view=positions&width=8&shift=3")
    expected = api.get("/positions", params={"width": 8, "steps": 3, "place": 5}).json()["shift"]
    page.get_by_role("application", name="Shift as a linear map").focus()
    live = page.locator("[data-picture^=shift] [aria-live]").first
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    expect(live).to_have_text(f"matrix · encoding, 0: {short(expected['moved'][0], 4)}")
    page.keyboard.press("ArrowDown")
    expect(live).to_have_text(f"encoding of {expected['place'] + 3}, 0: {short(expected['after'][0], 4)}")


def test_curves_are_those_of_the_server(visit, api, picture):
    page = visit("view=regression&w=2.5")
    page.wait_for_selector("[data-curve=chosen]")
    expected = api.get("/regression", params={"w": 2.5}).json()
    for name in ("average", "fixed", "chosen"):
        drawn = heights(page, f"[data-curve={name}]", "[data-picture=kernel-regression]")
        assert drawn == pytest.approx(expected[name]["prediction"], abs=0.01)
        expect(page.locator(f"[data-error={name}] dd")).to_have_text(short(expected[name]["error"], 4))
    picture(page, "regression")


def test_w_is_learned_in_the_page(visit, api, picture):
    page = visit("view=regression")
    page.wait_for_selector("[data-curve=chosen]")
    page.get_by_role("button", name="Learn w").click()
    page.get_by_role("button", name="Learn w").wait_for()  # it was Stop meanwhile
    expected = api.get("/regression").json()
    w = float(re.search(r"[#&]w=([\d.]+)", page.url)[1])
    assert w == pytest.approx(expected["w"], rel=1e-3)
    expect(page.locator("[data-picture=kernel-loss] [aria-live]")).to_contain_text(short(expected["losses"][-1], 4))
    picture(page, "regression-learned")


def test_points_are_dragged_and_moved_by_keys(visit):
    page = visit("view=regression")
    page.wait_for_selector("[data-curve=chosen]")
    before = path_ends(page, "[data-curve=chosen]")
    point = page.locator("circle.point").nth(25)
    box = point.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 120, steps=4)
    page.mouse.up()
    dragged = path_ends(page, "[data-curve=chosen]")
    assert sum(y for _, y in dragged) < sum(y for _, y in before) - 50
    page.get_by_role("application", name="Data and predictions").focus()
    page.keyboard.press("PageDown")
    page.keyboard.press("Shift+ArrowDown")
    assert sum(y for _, y in path_ends(page, "[data-curve=chosen]")) > sum(y for _, y in dragged)


def test_points_show_their_weights(visit, api):
    page = visit("view=regression&w=2.5")
    page.wait_for_selector("[data-curve=chosen]")
    expected = api.get("/regression", params={"w": 2.5, "n_test": 2}).json()  # queries 0 and 2.5
    drawn = [float(each.get_attribute("data-weight")) for each in page.locator("circle.point").all()]
    assert drawn == pytest.approx(expected["weights_chosen"][1], abs=1e-5)


def test_every_step_shows_the_models_numbers(visit, api, picture):
    page = visit("view=steps")
    page.wait_for_selector("[data-picture^=step]")
    expected = api.get("/steps", params={"text": "介绍一下西安"}).json()
    for number, stage in enumerate(expected["stages"]):
        page.wait_for_selector(f"[data-picture='step-{stage['name']}']")
        written = page.locator("svg text.numbers:not(.soft)").all_text_contents()
        assert written[: len(stage["columns"])] == [short(value, 2) for value in stage["values"][0]]
        expect(page.locator("main")).to_contain_text(f"Step {number + 1} of {len(expected['stages'])}")
        if stage["name"] in {"token", "scores", "weights", "inner"}:
            picture(page, f"steps-{stage['name']}")
        if number < len(expected["stages"]) - 1:
            page.get_by_role("button", name="Next").click()
    assert page.get_by_role("button", name="Next").is_disabled()


def test_layers_and_heads_are_chosen(visit, api):
    page = visit("view=steps&stage=8")
    page.wait_for_selector("[data-picture^=step]")
    page.get_by_role("group", name="Layer").get_by_role("radio", name="3").check()
    page.get_by_role("group", name="Head").get_by_role("radio", name="2").check()
    expected = api.get("/steps", params={"text": "介绍一下西安", "layer": 3, "head": 2}).json()
    weights = next(stage for stage in expected["stages"] if stage["name"] == "weights")
    first = short(weights["values"][0][0], 2)
    page.wait_for_function("text => document.querySelector('svg text.numbers').textContent === text", arg=first)
    rows = page.locator("svg text[text-anchor=end]").all_text_contents()
    assert rows == [label(token) for token in expected["pieces"]]
