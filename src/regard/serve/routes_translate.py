"""/translate, /trace."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from regard.align.heads import load_shown_heads
from regard.config import DecodeSettings, choose
from regard.pipeline.translator import Translation
from regard.serve.batching import TranslationJob
from regard.serve.models import ModelRegistry
from regard.serve.requests import (
    ERROR_RESPONSES,
    TraceRequest,
    TranslateRequest,
    check_texts,
    decode_settings,
    forced_ids,
    form_schema,
    json_response,
    read_translate_request,
)
from regard.serve.schema_api import Detected, TranslateResponse, TranslationUpdate
from regard.serve.schema_trace import HeadJson, View
from regard.serve.serialize import make_head, make_view, render_html, to_json
from regard.serve.state import NDJSON, LineStream, ServerState, TraceRun, stream_response, wait_for
from regard.trace.run import follow, trace_texts
from regard.trace.summary import HeadChoice
from regard.trace.trace import Trace


def translate_routes(state: ServerState) -> APIRouter:
    """Return the routes of /translate."""
    router = APIRouter(tags=["translate"], responses=ERROR_RESPONSES)

    @router.post("/translate", response_model=TranslateResponse, openapi_extra=form_schema())
    async def translate(request: Request) -> Response:
        """Translate one or more texts.

        Texts of all clients are batched; the texts of a client that disconnects are cancelled.
        """
        wanted = await read_translate_request(request)
        texts = [wanted.q] if isinstance(wanted.q, str) else wanted.q
        check_texts(texts, state.settings, state.settings.max_chars)
        models = [choose_model(state.models, wanted.model, wanted.source, wanted.target, text) for text in texts]
        pairs = zip(models, texts, strict=True)
        jobs = [TranslationJob(model, _decode_settings(state, model, wanted), text) for model, text in pairs]
        translations = await wait_for(request, *state.queue.submit(jobs))
        return json_response(_translate_response(state.models, wanted, models, translations))

    @router.post("/translate/stream", response_class=StreamingResponse, responses={200: {"content": {NDJSON: {}}}})
    async def stream(wanted: TraceRequest) -> Response:
        """Translate one text, and stream the best hypothesis after each step.

        Each line is one JSON object; the last one has `done` set and holds the translation.
        """
        check_texts([wanted.text, *wanted.prefix], state.settings, state.settings.max_chars)
        lines = LineStream()
        state.jobs.submit(lambda: _stream(state, wanted, lines.write)).add_done_callback(lines.end)
        return await stream_response(lines, lambda error: to_json(TranslationUpdate("", [], 0.0, True, error)))

    return router


def choose_model(models: ModelRegistry, model: str | None, source: str, target: str | None, text: str) -> str:
    """Return the requested model if it translates between the requested languages, else the best for them."""
    if model is None:
        return models.pick(source, target, text)
    entry = choose(models.entries, model, "model")
    if not entry.fits(None if source == "auto" else source, target):
        src_lang, tgt_lang = entry.languages
        raise ValueError(f"the model {model!r} translates from {src_lang} to {tgt_lang}, got {source} and {target}")
    return model


def _decode_settings(state: ServerState, model: str, wanted: TranslateRequest) -> DecodeSettings:
    default = state.models.entries[model].settings.decode
    return decode_settings(default, wanted.beam, 1 + wanted.alternatives, state.settings)


def _translate_response(
    registry: ModelRegistry, wanted: TranslateRequest, models: list[str], translations: list[Translation]
) -> dict[str, Any]:
    """Return a response as LibreTranslate does: a string for a string, and no fields that were not requested."""
    response: dict[str, list[Any]] = {"translatedText": [each.text for each in translations]}
    if wanted.alternatives:
        response["alternatives"] = [[other.text for other in each.alternatives[1:]] for each in translations]
    if wanted.source == "auto":
        response["detectedLanguage"] = [Detected(registry.entries[model].languages[0], 100.0) for model in models]
    return {name: values[0] for name, values in response.items()} if isinstance(wanted.q, str) else response


def _stream(state: ServerState, wanted: TraceRequest, write: Callable[[str], None]) -> None:
    """Translate in a thread, and write a line after each step."""
    model = choose_model(state.models, wanted.model, wanted.source, wanted.target, wanted.text)
    translator = state.models.open(model)
    settings = decode_settings(translator.settings, wanted.beam, 1, state.settings)
    prefix = forced_ids(translator, wanted.prefix)

    def send(best: Translation, done: bool = False) -> None:
        write(to_json(TranslationUpdate(best.text, best.tokens, best.score, done)) + "\n")

    send(follow(translator, wanted.text, settings, prefix, send), done=True)


MAX_INT = 2**31 - 1
Node = Annotated[
    int | None, Query(ge=0, le=MAX_INT, description="A node of the search tree; by default the best hypothesis.")
]
Part = Annotated[int, Query(ge=0, le=MAX_INT, description="Which part, if the text was too long to be read at once.")]
Index = Annotated[int, Query(ge=0, le=MAX_INT)]
Kind = Annotated[str, Query(description="encoder, decoder or cross.")]


def trace_routes(state: ServerState) -> APIRouter:
    """Return the routes of /trace."""
    router = APIRouter(prefix="/trace", tags=["trace"], responses=ERROR_RESPONSES)

    @router.post("", response_model=View)
    async def trace(request: Request, wanted: TraceRequest) -> Response:
        """Translate a text, and return its trace: tokens, attention weights, alternatives and the search tree.

        The trace is cached under its `id` for the other routes.
        """
        check_texts([wanted.text, *wanted.prefix], state.settings, state.settings.max_trace_chars)
        return await state.jobs.run(request, lambda: _trace(state, wanted))

    @router.get("/{id}", response_model=View)
    async def path(request: Request, id: str, node: Node = None, part: Part = 0) -> Response:
        """Return the trace of another hypothesis of the same search."""
        run = state.traces.get(id)
        return await state.jobs.run(request, lambda: _view_response(run, id, part, node))

    @router.get("/{id}/head", response_model=HeadJson)
    async def head(
        request: Request, id: str, kind: Kind, layer: Index, head: Index, node: Node = None, part: Part = 0
    ) -> Response:
        """Return the exact weights, scores and score terms of one head."""
        run = state.traces.get(id)
        return await state.jobs.run(request, lambda: json_response(make_head(run.trace(part, node), kind, layer, head)))

    @router.get("/{id}/html", response_class=Response, responses={200: {"content": {"text/html": {}}}})
    async def html(request: Request, id: str, node: Node = None, part: Part = 0) -> Response:
        """Return the trace as one HTML file that opens without a server."""
        run = state.traces.get(id)
        page = await state.jobs.run(
            request, lambda: render_html(run.trace(part, node), run.model, aligning=run.aligning)
        )
        return HTMLResponse(page, headers={"Content-Disposition": 'attachment; filename="regard.html"'})

    return router


def _trace(state: ServerState, wanted: TraceRequest) -> Response:
    """Trace a text in a thread."""
    model = choose_model(state.models, wanted.model, wanted.source, wanted.target, wanted.text)
    translator = state.models.open(model)
    settings = decode_settings(translator.settings, wanted.beam, 1, state.settings)
    traced = trace_texts(translator, [wanted.text], settings, forced_ids(translator, wanted.prefix))[0]
    if not traced.traces:
        raise ValueError(f"text must contain words, got {wanted.text!r}")
    run = TraceRun(model, traced.traces, _aligning_heads(state.models.entries[model].folder, traced.traces[0]))
    return _view_response(run, state.traces.add(run), 0, None)


def _view_response(run: TraceRun, id: str, part: int, node: int | None) -> Response:
    return json_response(make_view(run.trace(part, node), run.model, id, part, len(run.traces), run.aligning))


def _aligning_heads(folder: Path, trace: Trace) -> HeadChoice | None:
    """Return the heads that align words best, if the model has cross attention and they were measured."""
    return load_shown_heads(folder, (len(trace.cross), trace.cross[0].n_heads)) if trace.cross else None
