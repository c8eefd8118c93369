"""Request models, their checks, errors and their responses."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from regard.config import DecodeSettings
from regard.pipeline.translator import Translator
from regard.serve.schema_api import Failure
from regard.serve.server import ServeSettings

LOG = logging.getLogger("regard.serve")


class BusyError(Exception):
    """There is more to do than a server should promise."""


class TooLargeError(Exception):
    """More was asked for than a server takes."""


class UnknownError(Exception):
    """What was asked for is not here, or no longer."""


class BrokenError(Exception):
    """Something of the server's own is not as it should be; its log says what."""


class GoneError(Exception):
    """Nobody waits for the answer any more."""


def told(error: Exception) -> Exception:
    """Gives what clients are told about a translation that failed; what is not theirs to know is logged."""
    if isinstance(error, (ValueError, BrokenError)):
        return error
    LOG.error("a translation failed", exc_info=error)
    return BrokenError("the translation failed; the server's log says why")


FORM = "application/x-www-form-urlencoded"
Text = Annotated[str, Field(examples=["介绍一下西安"])]
Code = Annotated[str, Field(min_length=1, max_length=35)]
Beam = Annotated[int, Field(ge=1, le=1000, description="Hypotheses kept; 1 is greedy.")]
ModelName = Annotated[str, Field(max_length=200, description="One of /models; by the languages where none is named.")]


class TranslateAsk(BaseModel):
    """One text or several, as LibreTranslate takes them."""

    model_config = ConfigDict(strict=True)

    q: Text | list[str]
    source: Code = "auto"
    target: Annotated[Code, Field(examples=["en"])]
    format: Literal["text"] = "text"
    alternatives: Annotated[int, Field(ge=0, le=100, description="Other translations that are wanted.")] = 0
    model: ModelName | None = None
    beam: Beam | None = None
    api_key: Annotated[str | None, Field(description="Not needed here.")] = None


class Ask(BaseModel):
    """One text to look into, or to watch being translated."""

    model_config = ConfigDict(strict=True)

    text: Text
    source: Code = "auto"
    target: Code | None = None
    model: ModelName | None = None
    beam: Beam | None = None
    prefix: Annotated[
        list[str], Field(max_length=1000, description="Pieces with which the translation must begin.")
    ] = []


async def translate_ask(request: Request) -> TranslateAsk:
    """Reads JSON, or a form as LibreTranslate's page sends it."""
    body = await request.body()
    try:
        if request.headers.get("content-type", "").split(";")[0].strip().lower() == FORM:
            pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True)
            return TranslateAsk.model_validate(dict(pairs), strict=False)
        return TranslateAsk.model_validate(json.loads(body))
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_context=False)) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a body must be JSON, or a form: {error}") from error


def check_texts(texts: Sequence[str], settings: ServeSettings, most_chars: int) -> None:
    """Refuses too many, too long and broken texts."""
    if len(texts) > settings.max_texts:
        raise TooLargeError(f"a request may have {settings.max_texts} texts, got {len(texts)}: send several requests")
    chars = sum(map(len, texts))
    if chars > most_chars:
        raise TooLargeError(f"a request may have {most_chars} characters, got {chars}: send several requests")
    for number, text in enumerate(texts, start=1):
        if not text.isprintable():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise ValueError(f"a text must be Unicode, and text {number} has half a surrogate pair") from error


def decoding(default: DecodeSettings, beam: int | None, n_best: int, settings: ServeSettings) -> DecodeSettings:
    """Gives the model's own settings with what the client wants otherwise."""
    if beam is not None and beam > settings.max_beam:
        raise ValueError(f"beam must be {settings.max_beam} or less here, got {beam}")
    if n_best > settings.max_beam:
        raise ValueError(f"alternatives must be {settings.max_beam - 1} or fewer here, got {n_best - 1}")
    width = max(beam or (default.beam if default.method == "beam" else 1), n_best)
    return replace(default, method="greedy" if width == 1 else "beam", beam=width, n_best=n_best)


def forced_ids(translator: Translator, pieces: Sequence[str]) -> list[int]:
    """Finds the ids of pieces as they are spelled; a text of the same letters might be cut into others."""
    if not pieces:
        return []
    every = translator.tokenizer.pieces(range(translator.tokenizer.vocab_size("tgt")), "tgt")
    ids = {piece: token for token, piece in enumerate(every)}
    for piece in pieces:
        if piece not in ids:
            raise ValueError(
                f"a prefix must be made of the model's pieces, got {piece!r}: see target.pieces of a trace"
            )
    return [ids[piece] for piece in pieces]


def form_schema() -> dict[str, Any]:
    """Describes the two bodies of /translate for the OpenAPI page."""
    schema = TranslateAsk.model_json_schema()
    schema.pop("title")
    flat = {**schema, "properties": {**schema["properties"], "q": {"type": "string"}}}
    content = {"application/json": {"schema": schema}, FORM: {"schema": flat}}
    return {"requestBody": {"required": True, "content": content}}


RETRY_SECONDS = "1"


STATUS: dict[type[Exception], int] = {
    ValueError: 400,
    UnknownError: 404,
    TooLargeError: 413,
    GoneError: 499,  # nginx's number; nobody reads it
    BrokenError: 500,
    BusyError: 503,
}


WORDS = {
    400: "The body is no JSON, or a value makes no sense here.",
    404: "What was asked for is not here, or no longer.",
    408: "The body did not arrive in time.",
    413: "The body or the text is too large.",
    422: "A field is missing, or of another type.",
    500: "Something of the server's own is wrong; its log says what.",
    503: "There is too much to do; Retry-After says when to come back.",
}
FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": Failure, "description": words} for status, words in WORDS.items()
}


def failed(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Makes an answer; signs that are no characters are escaped, so that anything can be quoted."""
    return Response(json.dumps({"error": message}), status, headers, "application/json")


def answer_failures(app: FastAPI) -> None:
    """Tells an app what to answer."""
    for kind in STATUS:
        app.add_exception_handler(kind, _known)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unknown)


async def _known(request: Request, error: Exception) -> Response:
    kind = next(kind for kind in STATUS if isinstance(error, kind))
    return failed(STATUS[kind], str(error), {"Retry-After": RETRY_SECONDS} if kind is BusyError else None)


async def _invalid(request: Request, error: Any) -> Response:
    if any(each["type"] == "json_invalid" for each in error.errors()):
        return failed(400, f"a body must be JSON: {described(error.errors())}")
    return failed(422, described(error.errors()))


async def _http(request: Request, error: Any) -> Response:
    words = {404: f"there is nothing at {request.url.path}: see /docs", 405: f"{request.method} is not taken here"}
    return failed(error.status_code, words.get(error.status_code, str(error.detail)), error.headers)


async def _unknown(request: Request, error: Exception) -> Response:
    return failed(500, "something went wrong here; the server's log says what")


def described(errors: Sequence[Any]) -> str:
    """Says in one line what is wrong with which field."""
    places = (".".join(str(step) for step in each["loc"][each["loc"][:1] == ("body",) :]) for each in errors)
    return "; ".join(f"{place or 'body'}: {each['msg']}" for place, each in zip(places, errors, strict=True))
