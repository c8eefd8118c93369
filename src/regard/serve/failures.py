"""The answers to what goes wrong: always `{"error": …}`, and nothing about the server's disk."""

import json
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from regard.serve.errors import BrokenError, BusyError, GoneError, TooLargeError, UnknownError
from regard.serve.messages import Failure

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
