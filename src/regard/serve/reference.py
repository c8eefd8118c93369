"""The API described on one page, made from its OpenAPI document and from nothing outside."""

import json
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.responses import HTMLResponse, Response

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre, textarea, input { font: 14px/1.4 ui-monospace, monospace; }
details { border-top: 1px solid #8886; padding: .4rem 0; } summary { cursor: pointer; }
td, th { text-align: left; vertical-align: top; padding: .1rem 1rem .1rem 0; }
textarea { width: 100%; min-height: 7rem; box-sizing: border-box; }
pre { overflow: auto; max-height: 24rem; background: #8882; padding: .5rem; }
"""
SCRIPT = """
for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    let path = form.dataset.path;
    const query = new URLSearchParams();
    for (const input of form.querySelectorAll("input")) {
      if (path.includes(`{${input.name}}`)) path = path.replace(`{${input.name}}`, encodeURIComponent(input.value));
      else if (input.value !== "") query.set(input.name, input.value);
    }
    const body = form.querySelector("textarea")?.value;
    const headers = body === undefined ? {} : { "Content-Type": "application/json" };
    const said = form.querySelector("pre");
    said.hidden = false;
    said.textContent = "…";
    const answer = await fetch(query.size ? `${path}?${query}` : path, { method: form.dataset.method, headers, body });
    said.textContent = `${answer.status}\\n${(await answer.text()).slice(0, 20000)}`;
  });
}
"""


def reference(app: FastAPI) -> APIRouter:
    """Makes the routes."""
    router = APIRouter(include_in_schema=False)

    @router.get("/docs")
    async def docs() -> Response:
        return HTMLResponse(reference_page(app.openapi()))

    @router.get("/docs/try.js")
    async def script() -> Response:
        return Response(SCRIPT, media_type="text/javascript")

    return router


def reference_page(api: dict[str, Any]) -> str:
    """Describes every endpoint and every shape."""
    about = api["info"]
    calls = [_call(method, path, call, api) for path, calls in api["paths"].items() for method, call in calls.items()]
    shapes = [_shape(name, shape) for name, shape in sorted(api["components"]["schemas"].items())]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Regard: the API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>{escape(about['title'])} {escape(about['version'])}</h1><p>{escape(about['description'])} "
        '<a href="/openapi.json">openapi.json</a></p>'
        f"<h2>Endpoints</h2>{''.join(calls)}<h2>Shapes</h2>{''.join(shapes)}"
        '<script src="/docs/try.js"></script></body></html>'
    )


def _call(method: str, path: str, call: dict[str, Any], api: dict[str, Any]) -> str:
    inputs = "".join(_input(each) for each in call.get("parameters", []))
    body = call.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    area = f'<textarea aria-label="body">{escape(_example(body, api))}</textarea>' if body else ""
    answers = "".join(
        f"<tr><td>{status}<td>{escape(each['description'])}<td>{_types(each)}"
        for status, each in call["responses"].items()
    )
    title = f"<code>{method.upper()} {escape(path)}</code> {escape(call.get('description', ''))}"
    return (
        f"<details><summary>{title}</summary>"
        f'<form data-method="{method.upper()}" data-path="{escape(path)}"><table>{inputs}</table>{area}'
        f"<button>Send</button><pre hidden></pre></form><table>{answers}</table></details>"
    )


def _input(each: dict[str, Any]) -> str:
    name, schema = escape(each["name"]), each["schema"]
    value = escape(str(schema.get("default", "") if schema.get("default") is not None else ""))
    words = escape(each.get("description", ""))
    return (
        f'<tr><td><label><code>{name}</code> <input name="{name}" value="{value}"></label><td>{_type(schema)} {words}'
    )


def _shape(name: str, shape: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code><td>{_type(about)}<td>{escape(about.get('description', ''))}"
        for field, about in shape.get("properties", {}).items()
    )
    title = f"<code>{escape(name)}</code> {escape(shape.get('description', ''))}"
    return f'<details id="{escape(name)}"><summary>{title}</summary><table>{rows}</table></details>'


def _types(response: dict[str, Any]) -> str:
    return ", ".join(
        f"{escape(kind)} {_type(content.get('schema', {}))}" for kind, content in response.get("content", {}).items()
    )


def _type(schema: dict[str, Any]) -> str:
    """Writes a type as people do."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = [f"{sign} {schema[key]:g}" for key, sign in BOUNDS.items() if key in schema]
    return escape(" ".join([str(schema.get("const", schema.get("type", ""))), *bounds]))


BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def _example(schema: dict[str, Any], api: dict[str, Any]) -> str:
    """Fills a body with what must be there."""
    if "$ref" in schema:
        schema = api["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
    wanted = {name: schema["properties"][name] for name in schema.get("required", [])}
    return json.dumps({name: _first(about) for name, about in wanted.items()}, ensure_ascii=False, indent=1)


def _first(about: dict[str, Any]) -> str:
    choices = [about, *about.get("anyOf", [])]
    return next((each["examples"][0] for each in choices if each.get("examples")), "")
