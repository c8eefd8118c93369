"""The routes that look into a run."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, Response

from regard.serve.answers import answer
from regard.serve.asks import Ask, check_texts, decoding, forced_ids
from regard.serve.failures import FAILURES
from regard.serve.house import House
from regard.serve.html import page_of
from regard.serve.kept import Run
from regard.serve.looking import unless_gone
from regard.serve.payload import head_of, view_of
from regard.serve.translating import chosen_model
from regard.serve.view import Head, View
from regard.trace.choice import Choice
from regard.trace.kept import kept_choice
from regard.trace.run import traced
from regard.trace.trace import Trace

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
    found = traced(translator, [ask.text], settings, forced_ids(translator, ask.prefix))[0]
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
