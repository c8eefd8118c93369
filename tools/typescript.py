"""Generate the page's types from the dataclasses of the API: `python tools/typescript.py > web/src/trace.ts`."""

import re
import types
from dataclasses import fields, is_dataclass
from inspect import cleandoc, getsource
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from regard.serve import schema_api, schema_trace

MODULES = (schema_trace, schema_api)
PRIMITIVES = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}
HEADING = "// Written by `python tools/typescript.py > web/src/trace.ts` from the dataclasses in src/regard/serve.\n"


def typescript() -> str:
    """Return the whole file: an interface for each dataclass of the schema modules, those of other rooms included."""
    values = (value for module in MODULES for value in vars(module).values())
    classes = dict.fromkeys(value for value in values if isinstance(value, type) and is_dataclass(value))
    return "\n".join([HEADING, *map(_interface, classes)])


def _name(cls: type) -> str:
    """Return the interface's name: where a class is the JSON of another, its suffix says so in Python only."""
    return cls.__name__.removesuffix("Json")


def _interface(cls: type) -> str:
    hints, comments = get_type_hints(cls), _field_comments(cls)
    doc = cleandoc(cls.__doc__ or "").split("\n")
    comment = f"/** {doc[0]} */" if len(doc) == 1 else "\n".join(["/**", *(f" * {x}".rstrip() for x in doc), " */"])
    lines = []
    for field in fields(cls):
        if field.name in comments:
            lines.append(f"  /** {comments[field.name]} */")
        lines.append(f"  {field.name}: {_type(hints[field.name])};")
    return "\n".join([comment, f"export interface {_name(cls)} {{", *lines, "}", ""])


def _field_comments(cls: type) -> dict[str, str]:
    """Return the comments beside the fields of a class, without those addressed to the linter."""
    comments = re.findall(r"^ {4}(\w+): .*?  # (?:noqa: \w+)?(.*)$", getsource(cls), re.M)
    return {name: comment for name, comment in comments if comment}


def _type(hint: Any) -> str:
    origin = get_origin(hint)
    if hint in PRIMITIVES:
        return PRIMITIVES[hint]
    if origin is list:
        inner = _type(get_args(hint)[0])
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if origin in {Union, types.UnionType}:
        return " | ".join(_type(arg) for arg in get_args(hint))
    if origin is Literal:
        return " | ".join(f'"{arg}"' for arg in get_args(hint))
    return _name(hint)


if __name__ == "__main__":
    print(typescript(), end="")
