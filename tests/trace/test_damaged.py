"""Damaged traces are refused when they are read, by name; what is taken can be looked at to the end."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from regard.serve.schema_api import to_json
from regard.serve.serialize import make_head, make_view
from regard.trace import load_trace
from tests.trace.makers import METHODS, make_model, one_trace

MODELS = {
    "sinusoidal": lambda: make_model(dtype=torch.float32),
    "t5": lambda: make_model(scheme="t5", dtype=torch.float32),
    "rotary": lambda: make_model(scheme="rotary", dtype=torch.float32),
    "additive": lambda: make_model("recurrent", "none", "additive", torch.float32, n_heads=1),
}
TENSORS = {
    "missing": lambda x: None,
    "0-d": lambda x: torch.zeros((), dtype=x.dtype),
    "empty": lambda x: x[:0],
    "cut": lambda x: x[..., :-1].contiguous(),
    "one row less": lambda x: x[:-1].contiguous(),
    "longer": lambda x: torch.cat([x, x[:1]]),
    "one axis more": lambda x: x[None].contiguous(),
    "without an axis": lambda x: x[0].contiguous(),
    "NaN": lambda x: torch.full_like(x, torch.nan) if x.is_floating_point() else torch.full_like(x, 99),
    "negative": lambda x: torch.full_like(x, -7),
    "other type": lambda x: x.to(torch.int16 if x.is_floating_point() else torch.float32),
}
NOTES = (None, -1, 10**9, "x", [], {}, [[]], True, float("nan"), 1.5, ["a"])


def use(trace):
    """Looks at everything that a page, a notebook or a table looks at."""
    to_json(make_view(trace))
    for look in trace.attention:
        to_json(make_head(trace, look.kind, look.layer, look.n_heads - 1))
    trace.to_hf()
    repr(trace)
    for node in trace.tree.nodes:
        trace.tree.hypothesis(node.number)
    trace.at(trace.end_node)


def places(notes, path=()):
    """Yields the path to each value of nested notes; of a list, to its first one."""
    yield path
    items = notes.items() if isinstance(notes, dict) else enumerate(notes[:1]) if isinstance(notes, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def replaced(notes, path, value):
    """Returns notes with another value at a place."""
    if not path:
        return value
    copy = dict(notes) if isinstance(notes, dict) else list(notes)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


def damaged(path):
    """Yields every damage with its name, as tensors and notes."""
    tensors = load_file(path)
    with safe_open(path, framework="pt") as opened:
        notes = json.loads(opened.metadata()["trace"])
    for name, tensor in tensors.items():
        for what, change in TENSORS.items():
            if tensor.dim() == 0 or (what == "without an axis" and len(tensor) == 0):
                continue
            other = change(tensor)
            rest = {key: x for key, x in tensors.items() if key != name}
            yield f"{name} {what}", rest if other is None else {**rest, name: other}, notes
    for place in places(notes):
        for value in NOTES:
            yield f"{place} = {value!r}", tensors, replaced(notes, place, value)


@pytest.mark.parametrize(
    ("model", "method"), [("sinusoidal", "greedy"), ("t5", "beam"), ("rotary", "greedy"), ("additive", "beam")]
)
@pytest.mark.usefixtures("unchecked")
def test_damaged_traces_are_refused_when_they_are_read(model, method, tmp_path):
    path = tmp_path / "x.safetensors"
    one_trace(MODELS[model](), "abc", **METHODS[method], max_extra=2).save(path)
    use(load_trace(path))
    refused, failed, n = 0, [], 0
    for name, tensors, notes in damaged(path):
        n += 1
        save_file(tensors, path, {"trace": json.dumps(notes)})
        try:
            trace = load_trace(path)
        except ValueError as error:
            refused += 1
            if not str(error).startswith(str(path)):
                failed.append(f"{name}: unnamed: {error!r:.80}")
            continue
        except Exception as error:
            failed.append(f"{name}: {error!r:.80}")
            continue
        try:
            use(trace)
        except Exception as error:
            failed.append(f"{name}: later: {error!r:.80}")
    assert not failed, f"{len(failed)} of {n}\n" + "\n".join(failed)
    assert refused > n / 2
