"""The page's types, written from the dataclasses that become its JSON."""

import re
import types
from dataclasses import fields, is_dataclass
from inspect import cleandoc, getsource
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from regard.serve import schema_api, schema_trace

PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}
HEADING = """// Written by `python -m regard.serve.types > web/src/trace.ts` from the dataclasses in src/regard/serve.
"""


def typescript() -> str:
    """Gives the whole file."""
    rooms = (schema_trace, schema_api)
    found = [each for room in rooms for each in vars(room).values() if getattr(each, "__module__", "") == room.__name__]
    mine = [each for each in found if isinstance(each, type) and is_dataclass(each)]
    return "\n".join([HEADING, *(_interface(each) for each in mine)])


def _interface(each: type) -> str:
    hints, notes = get_type_hints(each), _notes(each)
    words = cleandoc(each.__doc__ or "").split("\n")
    comment = (
        f"/** {words[0]} */" if len(words) == 1 else "\n".join(["/**", *(f" * {w}".rstrip() for w in words), " */"])
    )
    lines = []
    for field in fields(each):
        if field.name in notes:
            lines.append(f"  /** {notes[field.name]} */")
        lines.append(f"  {field.name}: {_written(hints[field.name])};")
    return "\n".join([comment, f"export interface {each.__name__} {{", *lines, "}", ""])


def _notes(each: type) -> dict[str, str]:
    """Finds the comments that stand beside fields; what is meant for a linter is none."""
    found = re.findall(r"^ {4}(\w+): .*?  # (?:noqa: \w+)?(.*)$", getsource(each), re.M)
    return {name: note for name, note in found if note}


def _written(hint: Any) -> str:
    origin = get_origin(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if origin is list:
        inner = _written(get_args(hint)[0])
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if origin in {Union, types.UnionType}:
        return " | ".join(_written(each) for each in get_args(hint))
    if origin is Literal:
        return " | ".join(f'"{each}"' for each in get_args(hint))
    return hint.__name__


if __name__ == "__main__":
    print(typescript(), end="")
