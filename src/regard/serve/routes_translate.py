"""/translate, /trace."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from regard.align.heads import kept_choice
from regard.config import DecodeSettings, choose
from regard.data.normalise import language_code
from regard.pipeline.translator import Translation
from regard.serve.batching import TranslationJob
from regard.serve.jobs import NDJSON, Lines, streamed, unless_gone
from regard.serve.models import Shelf
from regard.serve.requests import (
    FAILURES,
    Ask,
    TranslateAsk,
    check_texts,
    decoding,
    forced_ids,
    form_schema,
    translate_ask,
)
from regard.serve.schema_api import Detected, Translated, Written
from regard.serve.schema_trace import Head, View
from regard.serve.serialize import answer, head_of, page_of, to_json, view_of
from regard.serve.state import House, Run
from regard.trace.run import follow, trace_texts
from regard.trace.summary import Choice
from regard.trace.trace import Trace


def translating(house: House) -> APIRouter:
    """Makes the routes."""
    router = APIRouter(tags=["translate"], responses=FAILURES)

    @router.post("/translate", response_model=Translated, openapi_extra=form_schema())
    async def translate(request: Request) -> Response:
        """Translates one text or several; those of many clients are translated together."""
        ask = await translate_ask(request)
        texts = [ask.q] if isinstance(ask.q, str) else ask.q
        check_texts(texts, house.settings, house.settings.max_chars)
        models = [chosen_model(house.shelf, ask.model, ask.source, ask.target, text) for text in texts]
        pairs = zip(models, texts, strict=True)
        jobs = [TranslationJob(model, _decoding(house, model, ask), text) for model, text in pairs]
        found = await unless_gone(request, *house.desk.submit(jobs))
        return answer(_translated(house.shelf, ask, models, found))

    @router.post("/translate/stream", response_class=StreamingResponse, responses={200: {"content": {NDJSON: {}}}})
    async def stream(ask: Ask) -> Response:
        """Translates one text, and writes a line after each step: the best so far, and at last the translation."""
        check_texts([ask.text, *ask.prefix], house.settings, house.settings.max_chars)
        lines = Lines()
        house.looking.submit(lambda: _write(house, ask, lines.write)).add_done_callback(lines.end)
        return await streamed(lines, lambda words: to_json(Written("", [], 0.0, True, words)))

    return router


def chosen_model(shelf: Shelf, model: str | None, source: str, target: str | None, text: str) -> str:
    """Gives the model that was named, if it translates as was said, or else the one that suits."""
    if model is None:
        return shelf.pick(source, target, text)
    have = choose(shelf.books, model, "model").languages
    wants = (None if source == "auto" else source, target)
    if any(want is not None and language_code(want) != has for want, has in zip(wants, have, strict=True)):
        raise ValueError(f"the model {model!r} translates from {have[0]} to {have[1]}, got {source} and {target}")
    return model


def _decoding(house: House, model: str, ask: TranslateAsk) -> DecodeSettings:
    return decoding(house.shelf.books[model].made.decode, ask.beam, 1 + ask.alternatives, house.settings)


def _translated(shelf: Shelf, ask: TranslateAsk, models: list[str], found: list[Translation]) -> dict[str, Any]:
    """Words a `Translated` as LibreTranslate does: what was one stays one, and what was not asked for is not there."""
    said: dict[str, list[Any]] = {"translatedText": [each.text for each in found]}
    if ask.alternatives:
        said["alternatives"] = [[other.text for other in each.alternatives[1:]] for each in found]
    if ask.source == "auto":
        said["detectedLanguage"] = [Detected(shelf.books[model].languages[0], 100.0) for model in models]
    return {name: values[0] for name, values in said.items()} if isinstance(ask.q, str) else said


def _write(house: House, ask: Ask, write: Callable[[str], None]) -> None:
    """Translates in a thread, and writes as it goes."""
    model = chosen_model(house.shelf, ask.model, ask.source, ask.target, ask.text)
    translator = house.shelf.open(model)
    settings = decoding(translator.settings, ask.beam, 1, house.settings)
    prefix = forced_ids(translator, ask.prefix)

    def tell(now: Translation, done: bool = False) -> None:
        write(to_json(Written(now.text, now.tokens, now.score, done)) + "\n")

    tell(follow(translator, ask.text, settings, prefix, tell), done=True)


MOST = 2**31 - 1
Node = Annotated[int | None, Query(ge=0, le=MOST, description="A node of the tree; the best hypothesis without one.")]
Part = Annotated[int, Query(ge=0, le=MOST, description="Which part of a text that was read in several.")]
Number = Annotated[int, Query(ge=0, le=MOST)]
Kind = Annotated[str, Query(description="encoder, decoder or cross.")]


def tracing(house: House) -> APIRouter:
    """Makes the routes."""
    router = APIRouter(prefix="/trace", tags=["look"], responses=FAILURES)

    @router.post("", response_model=View)
    async def trace(request: Request, ask: Ask) -> Response:
        """Translates a text, and shows everything that can be seen in the run; it is kept for questions that follow."""
        check_texts([ask.text, *ask.prefix], house.settings, house.settings.max_trace_chars)
        return (await unless_gone(request, house.looking.submit(lambda: _traced(house, ask))))[0]

    @router.get("/{id}", response_model=View)
    async def path(request: Request, id: str, node: Node = None, part: Part = 0) -> Response:
        """Shows another path of the same search."""
        run = house.kept.get(id)
        return (await unless_gone(request, house.looking.submit(lambda: _shown(run, id, part, node))))[0]

    @router.get("/{id}/head", response_model=Head)
    async def head(
        request: Request, id: str, kind: Kind, layer: Number, head: Number, node: Node = None, part: Part = 0
    ) -> Response:
        """Gives one head's weights, scores and terms as numbers."""
        run = house.kept.get(id)
        work = house.looking.submit(lambda: answer(head_of(run.trace(part, node), kind, layer, head)))
        return (await unless_gone(request, work))[0]

    @router.get("/{id}/html", response_class=Response, responses={200: {"content": {"text/html": {}}}})
    async def html(request: Request, id: str, node: Node = None, part: Part = 0) -> Response:
        """Gives the view as one file that opens without a server."""
        run = house.kept.get(id)
        page = (await unless_gone(request, house.looking.submit(lambda: _saved(run, part, node))))[0]
        return HTMLResponse(page, headers={"Content-Disposition": 'attachment; filename="regard.html"'})

    return router


def _traced(house: House, ask: Ask) -> Response:
    """Looks into a text in a thread."""
    model = chosen_model(house.shelf, ask.model, ask.source, ask.target, ask.text)
    translator = house.shelf.open(model)
    settings = decoding(translator.settings, ask.beam, 1, house.settings)
    found = trace_texts(translator, [ask.text], settings, forced_ids(translator, ask.prefix))[0]
    if not found.traces:
        raise ValueError(f"a text to look into must have words, got {ask.text!r}")
    run = Run(model, found.traces, _aligning(house.shelf.books[model].folder, found.traces[0]))
    return _shown(run, house.kept.add(run), 0, None)


def _shown(run: Run, name: str, part: int, node: int | None) -> Response:
    return answer(view_of(run.trace(part, node), run.model, name, part, len(run.traces), run.aligning))


def _saved(run: Run, part: int, node: int | None) -> str:
    return page_of(run.trace(part, node), run.model, aligning=run.aligning)


def _aligning(folder: Path, trace: Trace) -> Choice | None:
    """Reads which heads link words best, where a model looks across and somebody measured it."""
    return kept_choice(folder, (len(trace.cross), trace.cross[0].n_heads)) if trace.cross else None
