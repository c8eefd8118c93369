"""The API reference: every endpoint and schema of the OpenAPI document, and forms that call them."""

import json

from tests.web.conftest import expect


def opened(visit, url, target=""):
    page = visit.context().new_page()
    page.goto(f"{url}docs{target}")
    expect(page.locator("#schemas details").first).to_be_visible()
    return page


def test_every_endpoint_and_schema_is_described(visit, url, api, picture):
    page, document = opened(visit, url), api.get("/openapi.json").json()
    calls = [f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods]
    assert page.locator("#endpoints summary code").all_inner_texts() == calls
    assert page.locator("#schemas summary code").all_inner_texts() == sorted(document["components"]["schemas"])
    picture(page, "docs")


def test_a_link_to_a_schema_opens_it(visit, url, api):
    field = next(iter(api.get("/openapi.json").json()["components"]["schemas"]["Health"]["properties"]))
    page = opened(visit, url)
    endpoint = page.locator("#endpoints details", has_text="GET /health")
    endpoint.locator("summary").click()
    endpoint.get_by_role("link", name="Health").click()
    expect(page.locator("#Health").get_by_text(field, exact=True)).to_be_visible()
    expect(opened(visit, url, "#Health").locator("#Health").get_by_text(field, exact=True)).to_be_visible()


def test_an_endpoint_can_be_called(visit, url, api):
    page = opened(visit, url)
    body = page.locator("#endpoints details", has=page.locator("code", has_text="POST /trace")).first
    body.locator("summary").click()
    body.get_by_label("Request body").fill(json.dumps({"text": "我喜欢音乐。"}))
    body.get_by_role("button", name="Send").click()
    expect(body.locator("pre")).to_contain_text("I like music.")
    trace = api.post("/trace", json={"text": "我喜欢音乐。"}).json()
    path = page.locator("#endpoints details", has=page.locator("code", has_text="GET /trace/{id}/head"))
    path.locator("summary").click()
    for name, value in {"id": trace["id"], "kind": "cross", "layer": "0", "head": "0"}.items():
        path.locator(f"input[name={name}]").fill(value)
    path.get_by_role("button", name="Send").click()
    expect(path.locator("pre")).to_contain_text("200\n")
