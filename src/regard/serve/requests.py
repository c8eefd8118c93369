"""Request models, their checks, errors and their responses."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from regard.config import DecodeSettings
from regard.data.sentences import split_sentences
from regard.extras import MissingExtraError
from regard.pipeline.translator import Translator
from regard.serve import (
    BusyError,
    DisconnectedError,
    InternalError,
    LateError,
    NotFoundError,
    ServeSettings,
    TooLargeError,
)
from regard.serve.schema_api import ErrorResponse, to_json

LOG = logging.getLogger("regard.serve")


INTERNAL = "internal server error; see the server's log"


def public_error(error: Exception) -> Exception:
    """Return what a client may be shown of an error in a translation; anything internal is logged instead."""
    if isinstance(error, (ValueError, InternalError)):
        return error
    LOG.error("a translation failed", exc_info=error)
    return InternalError("the translation failed; see the server's log")


FORM = "application/x-www-form-urlencoded"
Text = Annotated[str, Field(examples=["介绍一下西安"])]
Code = Annotated[str, Field(min_length=1, max_length=35, description="A language code such as en or zh-CN.")]
Source = Annotated[
    str,
    Field(min_length=1, max_length=35, description="A language code, or auto to detect the language by its script."),
]
Beam = Annotated[int, Field(ge=1, le=1000, description="Beam size; 1 is greedy search.")]
ModelName = Annotated[
    str, Field(max_length=200, description="A name from /models; chosen by the languages if omitted.")
]


ApiKey = Annotated[str, Field(description="One of the server's keys, where it has any.")]


MAX_TERMS, MAX_VARIANTS, MAX_TERM_CHARS = 1000, 16, 200
Words = Annotated[str, Field(min_length=1, max_length=MAX_TERM_CHARS)]
Terms = Annotated[
    dict[Words, Words | Annotated[list[Words], Field(min_length=1, max_length=MAX_VARIANTS)]],
    Field(
        max_length=MAX_TERMS,
        description="Terms of the source, and the translation of each, or several of which one is used.",
        examples=[{"西安": ["Xi'an", "Sian"]}],
    ),
]


class TranslateRequest(BaseModel):
    """One or more texts to translate, compatible with LibreTranslate."""

    model_config = ConfigDict(strict=True)

    q: Text | list[str]
    source: Source = "auto"
    target: Annotated[Code, Field(examples=["en"])]
    format: Annotated[
        Literal["text", "html"], Field(description="In html, text between tags is translated, and tags are kept.")
    ] = "text"
    alternatives: Annotated[int, Field(ge=0, le=100, description="Number of alternative translations to return.")] = 0
    model: ModelName | None = None
    beam: Beam | None = None
    glossary: Terms | None = None
    api_key: ApiKey | None = None


class DetectRequest(BaseModel):
    """A text whose language is wanted, compatible with LibreTranslate."""

    model_config = ConfigDict(strict=True)

    q: Text
    api_key: ApiKey | None = None


class TraceRequest(BaseModel):
    """One text to trace, or to stream while it is translated."""

    model_config = ConfigDict(strict=True)

    text: Text
    source: Source = "auto"
    target: Code | None = None
    model: ModelName | None = None
    beam: Beam | None = None
    prefix: Annotated[
        list[str], Field(max_length=1000, description="Tokens with which the translation must begin.")
    ] = []


R = TypeVar("R", bound=BaseModel)


async def read_request(request: Request, kind: type[R]) -> R:
    """Parse JSON, or a form as LibreTranslate's page sends it."""
    body = await request.body()
    try:
        if media_type(request.headers) == FORM:
            pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True)
            return kind.model_validate(dict(pairs), strict=False)
        return kind.model_validate(json.loads(body))
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_context=False)) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the body must be JSON or a form: {error}") from error


def media_type(headers: Headers) -> str:
    """Return the type of a body without its parameters, in lower case."""
    return headers.get("content-type", "").split(";")[0].strip().lower()


def check_texts(texts: Sequence[str], settings: ServeSettings) -> None:
    """Refuse texts that are too many, too long, or not valid Unicode."""
    if len(texts) > settings.max_texts:
        raise TooLargeError(
            f"a request may contain at most {settings.max_texts} texts, got {len(texts)}: split it into several"
        )
    chars, limit = sum(map(len, texts)), settings.max_chars
    if chars > limit:
        raise TooLargeError(f"a request may contain at most {limit} characters, got {chars}: split it into several")
    for number, text in enumerate(texts, start=1):
        if not text.isprintable():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise ValueError(f"text must be valid Unicode, got an unpaired surrogate in text {number}") from error


SENTENCE_CHARS = 16  # a text without ends of sentences counts as sentences of this length


def check_work(texts: Sequence[str], beam: int, settings: ServeSettings) -> None:
    """Refuse texts of so many sentences that their search would take too long, before any work is done."""
    n_sentences = sum(max(len(split_sentences(text)), len(text) // SENTENCE_CHARS) for text in texts)
    limit = settings.max_hypotheses // beam
    if n_sentences > limit:
        raise TooLargeError(
            f"a request may contain at most {limit} sentences with a beam of {beam}, got {n_sentences} or as long as "
            "that: split it into several, or use a smaller beam"
        )


def decode_settings(default: DecodeSettings, beam: int | None, n_best: int, settings: ServeSettings) -> DecodeSettings:
    """Return a model's own settings, with the client's beam size and number of translations."""
    if beam is not None and beam > settings.max_beam:
        raise ValueError(f"beam must be at most {settings.max_beam} on this server, got {beam}")
    if n_best > settings.max_beam:
        raise ValueError(f"alternatives must be at most {settings.max_beam - 1} on this server, got {n_best - 1}")
    width = max(beam or (default.beam if default.method == "beam" else 1), n_best)
    return replace(default, method="greedy" if width == 1 else "beam", beam=width, n_best=n_best)


def forced_ids(translator: Translator, tokens: Sequence[str]) -> list[int]:
    """Return the ids of tokens by their exact spelling: tokenizing the text that they make might give others."""
    if not tokens:
        return []
    vocabulary = translator.tokenizer.pieces(range(translator.tokenizer.vocab_size("tgt")), "tgt")
    ids = {token: number for number, token in enumerate(vocabulary)}
    for token in tokens:
        if token not in ids:
            raise ValueError(
                f"prefix must consist of tokens of the model's vocabulary, got {token!r}: see target.pieces of a trace"
            )
    return [ids[token] for token in tokens]


def form_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the two bodies of a route of LibreTranslate for the OpenAPI document."""
    schema = kind.model_json_schema()
    schema.pop("title")
    flat = {**schema, "properties": {**schema["properties"], "q": {"type": "string"}}}
    content = {"application/json": {"schema": schema}, FORM: {"schema": flat}}
    return {"requestBody": {"required": True, "content": content}}


def json_response(value: Any) -> Response:
    """Return a dataclass, or a list of them, as JSON."""
    return Response(to_json(value), media_type="application/json")


RETRY_SECONDS = "1"


STATUS: dict[type[Exception], int] = {
    MissingExtraError: 501,  # before ValueError, of which it is one
    ValueError: 400,
    NotFoundError: 404,
    TooLargeError: 413,
    DisconnectedError: 499,  # nginx's number; nobody reads it
    InternalError: 500,
    BusyError: 503,
    LateError: 504,
}


DESCRIPTIONS = {
    400: "The body is not valid JSON, or a value is not allowed.",
    404: "The resource does not exist, or is no longer cached.",
    408: "The request body did not arrive in time.",
    413: "The body or its texts exceed a limit of this server.",
    422: "A field is missing or has the wrong type.",
    500: "Internal server error; the server's log has the details.",
    501: "The route or the model needs PyTorch, which this server does not have.",
    503: "The server is overloaded or stopping; retry after the time in Retry-After.",
    504: "The work took longer than this server allows.",
}
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": description} for status, description in DESCRIPTIONS.items()
}


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Make a response; its JSON is ASCII, so that a message may quote even unpaired surrogates."""
    return Response(json.dumps({"error": message}), status, headers, "application/json")


def add_error_handlers(app: FastAPI) -> None:
    """Make an app respond to every error in the same form."""
    for kind in STATUS:
        app.add_exception_handler(kind, _expected)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _expected(request: Request, error: Exception) -> Response:
    kind = next(kind for kind in STATUS if isinstance(error, kind))
    return error_response(STATUS[kind], str(error), {"Retry-After": RETRY_SECONDS} if kind is BusyError else None)


async def _invalid(request: Request, error: Any) -> Response:
    if any(each["type"] == "json_invalid" for each in error.errors()):
        return error_response(400, f"the body must be JSON: {describe_errors(error.errors())}")
    return error_response(422, describe_errors(error.errors()))


async def _http(request: Request, error: Any) -> Response:
    path = request.url.path
    messages = {404: f"no such path: {path}; see /docs", 405: f"method {request.method} is not allowed for {path}"}
    return error_response(error.status_code, messages.get(error.status_code, str(error.detail)), error.headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    return error_response(500, INTERNAL)


def describe_errors(errors: Sequence[Any]) -> str:
    """Return one line that says what is wrong with which field."""
    fields = (".".join(str(step) for step in each["loc"][each["loc"][:1] == ("body",) :]) for each in errors)
    return "; ".join(f"{field or 'body'}: {each['msg']}" for field, each in zip(fields, errors, strict=True))
