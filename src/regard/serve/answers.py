"""Dataclasses become answers."""

from typing import Any

from starlette.responses import Response

from regard.serve.json_answer import to_json


def answer(value: Any) -> Response:
    """Makes an answer in JSON."""
    return Response(to_json(value), media_type="application/json")
