"""/translate, /trace."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from regard.config import choose
from regard.data.normalise import language_code
from regard.pipeline.live import LiveText
from regard.pipeline.translator import Translation
from regard.serve.batching import RequestTerms, TranslationJob
from regard.serve.libretranslate import Markup, detect_languages, split_markup
from regard.serve.models import UNNAMED, ModelRegistry
from regard.serve.requests import (
    ERROR_RESPONSES,
    DetectRequest,
    TraceRequest,
    TranslateRequest,
    check_texts,
    check_work,
    decode_settings,
    forced_ids,
    form_schema,
    json_response,
    read_request,
)
from regard.serve.schema_api import Detected, TranslateResponse, TranslationUpdate, to_json
from regard.serve.schema_trace import HeadJson, View
from regard.serve.serialize import make_head, make_view, render_html
from regard.serve.state import NDJSON, ServerState, TraceRun
from regard.trace.head_choice import HeadChoice, load_shown_heads
from regard.trace.run import trace_part
from regard.trace.trace import Trace


def translate_routes(state: ServerState) -> APIRouter:
    """Return the routes of /translate and /detect."""
    router = APIRouter(tags=["translate"], responses=ERROR_RESPONSES)

    @router.post("/translate", response_model=TranslateResponse, openapi_extra=form_schema(TranslateRequest))
    async def translate(request: Request) -> Response:
        """Translate one or more texts.

        Texts of all clients are batched; the texts of a client that disconnects are cancelled.
        """
        wanted = await read_request(request, TranslateRequest)
        texts = [wanted.q] if isinstance(wanted.q, str) else wanted.q
        check_texts(texts, state.settings)
        terms = RequestTerms(wanted.glossary) if wanted.glossary else None
        requested = [_requested(state, wanted, text) for text in texts]
        jobs = [job for each in requested for job in each.jobs]
        check_work([job.text for job in jobs], max((job.settings.beam for job in jobs), default=1), state.settings)
        turn = object()
        queued = state.queue.submit([replace(job, turn=turn, terms=terms) for job in jobs])
        found = iter(await state.waiter.results(request, *queued))
        results = [each.finish(list(islice(found, len(each.jobs)))) for each in requested]
        return json_response(_translate_response(wanted, requested, results))

    @router.post("/detect", response_model=list[Detected], openapi_extra=form_schema(DetectRequest))
    async def detect(request: Request) -> Response:
        """Detect the language of a text by its script, as LibreTranslate does: the likeliest first."""
        wanted = await read_request(request, DetectRequest)
        check_texts([wanted.q], state.settings)
        return json_response(detect_languages(wanted.q))

    @router.post("/translate/stream", response_class=StreamingResponse, responses={200: {"content": {NDJSON: {}}}})
    async def stream(request: Request, wanted: TraceRequest) -> Response:
        """Translate one text, and stream the best hypothesis as it grows.

        Each line is one JSON object; the last one has `done` set and holds the translation, and the `id` of its trace,
        which GET /trace/{id} returns without searching again.
        """
        check_texts([wanted.text, *wanted.prefix], state.settings)
        return await state.jobs.stream(
            request,
            lambda write: _stream(state, wanted, write),
            lambda error: to_json(TranslationUpdate("", [], 0.0, True, error)),
        )

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


@dataclass(frozen=True)
class RequestedText:
    """A text of a request: the language that it is taken for, its markup, and a job for each stretch to translate.

    A text that is in the target language already has none, and is given back.
    """

    text: str
    language: Detected
    markup: Markup | None
    jobs: list[TranslationJob]

    def finish(self, found: list[Translation]) -> list[str]:
        """Return its translations, the best first."""
        if not found:
            return [self.text]
        if self.markup is None:
            return [each.text for each in found[0].alternatives] or [""]
        n_best = max(len(each.alternatives) for each in found)
        ranks = [
            [each.alternatives[min(rank, len(each.alternatives) - 1)].text for each in found] for rank in range(n_best)
        ]
        return [self.markup.join(texts) for texts in ranks]


def _requested(state: ServerState, wanted: TranslateRequest, text: str) -> RequestedText:
    markup = split_markup(text) if wanted.format == "html" else None
    texts = [text] if markup is None else markup.texts
    plain = " ".join(texts)
    detected = detect_languages(plain)
    try:
        model = choose_model(state.models, wanted.model, wanted.source, wanted.target, plain)
    except ValueError:
        source = detected[0].language if wanted.source == "auto" else wanted.source
        if wanted.model is None and language_code(source) == language_code(wanted.target):
            return RequestedText(text, detected[0], markup, [])
        raise
    settings = decode_settings(
        state.models.entries[model].settings.decode, wanted.beam, 1 + wanted.alternatives, state.settings
    )
    reads = state.models.entries[model].languages[0]
    language = next((each for each in detected if each.language == reads), Detected(reads, 0.0))
    language = detected[0] if reads in UNNAMED else language
    return RequestedText(text, language, markup, [TranslationJob(model, settings, each) for each in texts])


def _translate_response(
    wanted: TranslateRequest, requested: list[RequestedText], results: list[list[str]]
) -> dict[str, Any]:
    """Return a response as LibreTranslate does: a string for a string, and no fields that were not requested."""
    response: dict[str, list[Any]] = {"translatedText": [best for best, *_ in results]}
    if wanted.alternatives:
        response["alternatives"] = [others for _, *others in results]
    if wanted.source == "auto":
        response["detectedLanguage"] = [each.language for each in requested]
    return {name: values[0] for name, values in response.items()} if isinstance(wanted.q, str) else response


def _stream(state: ServerState, wanted: TraceRequest, write: Callable[[str], None]) -> None:
    """Translate in a thread, and write a line as the translation grows."""
    model, live = _open_text(state, wanted)

    def send(best: Translation, id: str | None = None) -> None:
        done = id is not None
        write(to_json(TranslationUpdate(best.text, best.tokens, best.score, done, id=id or None)) + "\n")

    translation = live.follow(send)
    send(translation, state.traces.add(_make_run(state, model, live)) if live.text.parts else "")


def _open_text(state: ServerState, wanted: TraceRequest) -> tuple[str, LiveText]:
    model = choose_model(state.models, wanted.model, wanted.source, wanted.target, wanted.text)
    translator = state.models.open(model)
    settings = decode_settings(translator.settings, wanted.beam, 1, state.settings)
    check_work([wanted.text], settings.beam, state.settings)
    return model, LiveText(translator, wanted.text, settings, forced_ids(translator, wanted.prefix))


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
        check_texts([wanted.text, *wanted.prefix], state.settings)
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

        def work() -> Response:
            return json_response(make_head(run.trace(part, node), kind, layer, head))

        return await state.jobs.run(request, work)

    @router.get("/{id}/html", response_class=Response, responses={200: {"content": {"text/html": {}}}})
    async def html(request: Request, id: str, node: Node = None, part: Part = 0) -> Response:
        """Return the trace as one HTML file that opens without a server."""
        run = state.traces.get(id)

        def render() -> str:
            trace = run.trace(part, node)
            return render_html(trace, run.model, aligning=run.aligning(trace))

        page = await state.jobs.run(request, render)
        return HTMLResponse(page, headers={"Content-Disposition": 'attachment; filename="regard.html"'})

    return router


def _trace(state: ServerState, wanted: TraceRequest) -> Response:
    """Trace the first part of a text in a thread; the others are traced when they are requested."""
    model, live = _open_text(state, wanted)
    if not live.text.parts:
        raise ValueError(f"text must contain words, got {wanted.text!r}")
    run = _make_run(state, model, live)
    run.trace()
    return _view_response(run, state.traces.add(run), 0, None)


def _view_response(run: TraceRun, id: str, part: int, node: int | None) -> Response:
    trace = run.trace(part, node)
    return json_response(make_view(trace, run.model, id, part, run.n_parts, run.aligning(trace)))


def _make_run(state: ServerState, model: str, live: LiveText) -> TraceRun:
    """Return the traces of a text, none of them made; they know the heads that align words best, where measured."""
    folder = state.models.entries[model].folder

    def aligning(trace: Trace) -> HeadChoice | None:
        sizes = (len(trace.cross), trace.cross[0].n_heads) if trace.cross else None
        return None if sizes is None else load_shown_heads(folder, sizes)

    return TraceRun(model, len(live.text.parts), partial(trace_part, live), aligning)
