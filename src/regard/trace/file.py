"""Trace <-> safetensors."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard import __version__
from regard.atomic import atomic_file
from regard.checkpoint.weights import write_tensors
from regard.config import DecodeSettings, choose, parse_settings
from regard.trace.attention import AttentionMap, GivenAttention, ProjectedAttention, RecordedAttention
from regard.trace.search_tree import SearchTree
from regard.trace.stored import StoredPart, without_prefix
from regard.trace.trace import OutputToken, ResidualNorms, TokenAlternative, Trace


def store_tree(tree: SearchTree) -> StoredPart:
    """Take a tree apart."""
    arrays = {"parents": tree.parents, "tokens": tree.tokens, "gains": tree.log_probs, "fates": tree.fates}
    notes = {"best": tree.best, "length_penalty": tree.length_penalty}
    texts = {str(token): text for token, text in tree.token_texts.items()}
    return StoredPart({**notes, "pieces": texts}, {name: torch.from_numpy(x) for name, x in arrays.items()})


def restore_tree(notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> SearchTree:
    """Put a tree together again."""
    parents, tokens, log_probs, fates = (tensors[name].numpy() for name in ("parents", "tokens", "gains", "fates"))
    texts = {int(token): text for token, text in notes["pieces"].items()}
    return SearchTree(parents, tokens, log_probs, fates, texts, notes["best"], notes["length_penalty"])


def store_norms(norms: Iterable[ResidualNorms]) -> StoredPart:
    """Take the norms of the residual stream apart."""
    stored = StoredPart({"flows": []})
    for number, each in enumerate(norms):
        stored.notes["flows"].append([each.stack, each.layer, each.sublayer])
        stored.tensors[str(number)] = torch.stack([each.before, each.update, each.after])
    return stored


def restore_norms(notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[ResidualNorms, ...]:
    """Put the norms of the stream together again."""
    return tuple(ResidualNorms(*where, *tensors[str(number)].unbind(0)) for number, where in enumerate(notes["flows"]))


FORMAT = 1
NOTES = "trace"  # the name of our notes in the file's own
WORDS = ("text", "output", "src_lang", "tgt_lang")

FORMS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Tensor]], AttentionMap]] = {
    "recorded": RecordedAttention.restore,
    "given": GivenAttention.restore,
    "projected": ProjectedAttention.restore,
}


def save_trace(trace: Trace, path: str | PathLike[str]) -> None:
    """Write a trace whole or not at all: what was recorded, exact to the bit, and nothing that can be made from it.

    Numbers stay in float32. In float16 a file would be half as large and weights off by 4e-4 (measured on the bundled
    zh-en), which is little to the eye; but terms would no longer add up, and the checks would show rounding alone.
    """
    tree, norms, attention_maps = (
        store_tree(trace.tree),
        store_norms(trace.residual_norms),
        [attention_map.store() for attention_map in trace.attention],
    )
    notes = {
        "format": FORMAT,
        "regard": __version__,
        **{name: getattr(trace, name) for name in WORDS},
        "settings": {name: value for name, value in asdict(trace.settings).items() if value is not None},
        "source": trace.source,
        "read": trace.read,
        "steps": [_step_notes(step) for step in trace.steps],
        "leaf": trace.end_node,
        "tree": tree.notes,
        "flow": norms.notes,
        "looks": [attention_map.notes for attention_map in attention_maps],
    }
    tensors = tree.prefixed("tree") | norms.prefixed("flow")
    for number, attention_map in enumerate(attention_maps):
        tensors |= attention_map.prefixed(f"look.{number}")
    with atomic_file(Path(path)) as draft:
        write_tensors(draft, tensors, {NOTES: json.dumps(notes, ensure_ascii=False)})


def load_trace(path: str | PathLike[str]) -> Trace:
    """Read what `save_trace` wrote; a missing, broken, foreign or newer file is named."""
    tensors, notes = _open(Path(path))
    try:
        return _restore(notes, tensors)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: this trace is not whole ({error!r}): save it again") from error


def _open(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
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


def _restore(notes: dict[str, Any], tensors: dict[str, Tensor]) -> Trace:
    attention_maps = [
        choose(FORMS, attention_map["form"], "form of a look")(attention_map, without_prefix(tensors, f"look.{number}"))
        for number, attention_map in enumerate(notes["looks"])
    ]
    return Trace(
        **{name: notes[name] for name in WORDS},
        settings=parse_settings(DecodeSettings, notes["settings"]),
        source=tuple(notes["source"]),
        read=tuple(notes["read"]),
        steps=tuple(_step(each) for each in notes["steps"]),
        attention=tuple(attention_maps),
        residual_norms=restore_norms(notes["flow"], without_prefix(tensors, "flow")),
        tree=restore_tree(notes["tree"], without_prefix(tensors, "tree")),
        end_node=notes["leaf"],
    )


def _step_notes(step: OutputToken) -> list[Any]:
    return [step.piece, step.log_prob, step.replayed, [[each.piece, each.log_prob] for each in step.alternatives]]


def _step(notes: list[Any]) -> OutputToken:
    piece, log_prob, replayed, alternatives = notes
    return OutputToken(piece, log_prob, replayed, tuple(TokenAlternative(*each) for each in alternatives))
