"""Trace <-> safetensors."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

import regard
from regard.atomic import atomic_file
from regard.checkpoint.weights import write_tensors
from regard.config import DecodeSettings, choose, parse_settings
from regard.trace.attention import GivenLook, Look, ProjectedLook, RecordedLook
from regard.trace.search_tree import Tree
from regard.trace.stored import Stored, below
from regard.trace.trace import Flow, Option, Step, Trace


def store_tree(tree: Tree) -> Stored:
    """Takes a tree apart."""
    arrays = {"parents": tree.parents, "tokens": tree.tokens, "gains": tree.gains, "fates": tree.fates}
    notes = {"best": tree.best, "length_penalty": tree.length_penalty}
    pieces = {str(token): piece for token, piece in tree.pieces.items()}
    return Stored({**notes, "pieces": pieces}, {name: torch.from_numpy(x) for name, x in arrays.items()})


def restore_tree(notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Tree:
    """Puts a tree together again."""
    arrays: dict[str, np.ndarray] = {name: tensors[name].numpy() for name in ("parents", "tokens", "gains", "fates")}
    pieces = {int(token): piece for token, piece in notes["pieces"].items()}
    return Tree(**arrays, pieces=pieces, best=notes["best"], length_penalty=notes["length_penalty"])


def store_flows(flows: Iterable[Flow]) -> Stored:
    """Takes the norms of the stream apart."""
    stored = Stored({"flows": []})
    for number, flow in enumerate(flows):
        stored.notes["flows"].append([flow.stack, flow.layer, flow.sublayer])
        stored.tensors[str(number)] = torch.stack([flow.before, flow.update, flow.after])
    return stored


def restore_flows(notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[Flow, ...]:
    """Puts the norms of the stream together again."""
    return tuple(Flow(*where, *tensors[str(number)].unbind(0)) for number, where in enumerate(notes["flows"]))


FORMAT = 1
NOTES = "trace"  # the name of our notes in the file's own
WORDS = ("text", "output", "src_lang", "tgt_lang")

FORMS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Tensor]], Look]] = {
    "recorded": RecordedLook.restore,
    "given": GivenLook.restore,
    "projected": ProjectedLook.restore,
}


def save_trace(trace: Trace, path: str | PathLike[str]) -> None:
    """Writes a trace whole or not at all: what was recorded, exact to the bit, and nothing that can be made from it.

    Numbers stay in float32. In float16 a file would be half as large and weights off by 4e-4 (measured on the bundled
    zh-en), which is little to the eye; but terms would no longer add up, and the checks would show rounding alone.
    """
    tree, flows, looks = store_tree(trace.tree), store_flows(trace.flows), [look.store() for look in trace.looks]
    notes = {
        "format": FORMAT,
        "regard": regard.__version__,
        **{name: getattr(trace, name) for name in WORDS},
        "settings": {name: value for name, value in asdict(trace.settings).items() if value is not None},
        "source": trace.source,
        "read": trace.read,
        "steps": [_step_notes(step) for step in trace.steps],
        "leaf": trace.leaf,
        "tree": tree.notes,
        "flow": flows.notes,
        "looks": [look.notes for look in looks],
    }
    tensors = tree.under("tree") | flows.under("flow")
    for number, look in enumerate(looks):
        tensors |= look.under(f"look.{number}")
    with atomic_file(Path(path)) as draft:
        write_tensors(draft, tensors, {NOTES: json.dumps(notes, ensure_ascii=False)})


def load_trace(path: str | PathLike[str]) -> Trace:
    """Reads what `save_trace` wrote; a missing, broken, foreign or newer file is named."""
    tensors, notes = _opened(Path(path))
    try:
        return _restored(notes, tensors)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: this trace is not whole ({error!r}): save it again") from error


def _opened(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors, found = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError as error:
        raise ValueError(f"{path}: there is no such trace") from error
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: a trace must be a whole safetensors file ({error}): save it again") from error
    try:
        notes = json.loads(found.get(NOTES, ""))
        version = notes["format"]
    except (ValueError, TypeError, KeyError) as error:
        have = ", ".join(found) or "nothing"
        raise ValueError(
            f"{path}: a trace must have notes called {NOTES!r}, got {have}: regard trace --out writes one"
        ) from error
    if version != FORMAT:
        made_by = notes.get("regard", "unknown")
        raise ValueError(
            f"{path}: the format of a trace must be {FORMAT} here, got {version!r} of regard {made_by}: "
            "read it with that version, or trace the text again"
        )
    return tensors, notes


def _restored(notes: dict[str, Any], tensors: dict[str, Tensor]) -> Trace:
    looks = [
        choose(FORMS, look["form"], "form of a look")(look, below(tensors, f"look.{number}"))
        for number, look in enumerate(notes["looks"])
    ]
    return Trace(
        **{name: notes[name] for name in WORDS},
        settings=parse_settings(DecodeSettings, notes["settings"]),
        source=tuple(notes["source"]),
        read=tuple(notes["read"]),
        steps=tuple(_step(each) for each in notes["steps"]),
        looks=tuple(looks),
        flows=restore_flows(notes["flow"], below(tensors, "flow")),
        tree=restore_tree(notes["tree"], below(tensors, "tree")),
        leaf=notes["leaf"],
    )


def _step_notes(step: Step) -> list[Any]:
    return [step.piece, step.log_prob, step.replayed, [[each.piece, each.log_prob] for each in step.alternatives]]


def _step(notes: list[Any]) -> Step:
    piece, log_prob, replayed, alternatives = notes
    return Step(piece, log_prob, replayed, tuple(Option(*each) for each in alternatives))
