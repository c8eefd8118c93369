"""The routes that translate."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from regard.config import DecodeSettings, choose
from regard.decode.translation import Translation
from regard.decode.translator import language
from regard.serve.answers import answer
from regard.serve.asks import Ask, TranslateAsk, check_texts, decoding, forced_ids, form_schema, translate_ask
from regard.serve.desk import Job
from regard.serve.failures import FAILURES
from regard.serve.house import House
from regard.serve.json_answer import to_json
from regard.serve.lines import Lines
from regard.serve.looking import unless_gone
from regard.serve.messages import Detected, Translated, Written
from regard.serve.shelf import Shelf
from regard.serve.streaming import NDJSON, streamed
from regard.trace.live import follow


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
        jobs = [Job(model, _decoding(house, model, ask), text) for model, text in zip(models, texts, strict=True)]
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
    if any(want is not None and language(want) != has for want, has in zip(wants, have, strict=True)):
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
