"""Trace <-> safetensors."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from regard import __version__
from regard.atomic import atomic_file
from regard.checkpoint.arrays import write_arrays
from regard.config import LARGEST_DECODE, DecodeSettings, choose, parse_settings
from regard.data.files import check_regular
from regard.extras import MissingExtraError, is_installed
from regard.trace.attention_map import KINDS, AttentionMap, StoredPart, as_array, check_numbers, without_prefix
from regard.trace.native_replay import NativeAttention
from regard.trace.search_tree import FATES, ROOT, SearchTree
from regard.trace.trace import OutputToken, ResidualNorms, TokenAlternative, Trace, check_sides


def store_tree(tree: SearchTree) -> StoredPart:
    """Take a tree apart."""
    arrays = {"parents": tree.parents, "tokens": tree.tokens, "gains": tree.log_probs, "fates": tree.fates}
    notes = {"best": tree.best, "length_penalty": tree.length_penalty}
    texts = {str(token): text for token, text in tree.token_texts.items()}
    return StoredPart({**notes, "pieces": texts}, arrays)


def restore_tree(notes: Mapping[str, Any], tensors: Mapping[str, Any]) -> SearchTree:
    """Put a tree together again."""
    parents, tokens, log_probs, fates = (as_array(tensors[name]) for name in ("parents", "tokens", "gains", "fates"))
    texts = {int(token): text for token, text in notes["pieces"].items()}
    return SearchTree(parents, tokens, log_probs, fates, texts, notes["best"], notes["length_penalty"])


def store_norms(norms: Iterable[ResidualNorms]) -> StoredPart:
    """Take the norms of the residual stream apart."""
    stored = StoredPart({"flows": []})
    for number, each in enumerate(norms):
        stored.notes["flows"].append([each.stack, each.layer, each.sublayer])
        stored.tensors[str(number)] = np.stack([as_array(x) for x in (each.before, each.update, each.after)])
    return stored


def restore_norms(notes: Mapping[str, Any], tensors: Mapping[str, Any]) -> tuple[ResidualNorms, ...]:
    """Put the norms of the stream together again."""
    return tuple(ResidualNorms(*where, *tensors[str(number)]) for number, where in enumerate(notes["flows"]))


FORMAT = 1
NOTES = "trace"  # the name of our notes in the file's own
WORDS = ("text", "output", "src_lang", "tgt_lang")


def restore_map(notes: Mapping[str, Any], tensors: Mapping[str, Any]) -> AttentionMap:
    """Restore a look: as tensors where PyTorch is installed, or as arrays."""
    if is_installed("torch"):
        from regard.trace.attention import FORMS  # PyTorch

        return choose(FORMS, notes["form"], "form of a look")(notes, tensors)
    return NativeAttention.restore(notes, tensors)


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
        write_arrays(
            draft,
            {name: np.ascontiguousarray(as_array(x)) for name, x in tensors.items()},
            {NOTES: json.dumps(notes, ensure_ascii=False)},
            save_file,
        )


def load_trace(path: str | PathLike[str]) -> Trace:
    """Read what `save_trace` wrote; a missing, broken, foreign or newer file is named."""
    tensors, notes = _open(Path(path))
    try:
        return _restore(notes, tensors)
    except MissingExtraError:
        raise
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{path}: this trace is not whole ({error!r}): save it again") from error


def _open(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        check_regular(path)
        with safe_open(path, framework="pt" if is_installed("torch") else "np") as file:
            tensors, found = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError as error:
        raise ValueError(f"{path}: there is no such trace") from error
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: a trace must be a whole safetensors file ({error}): save it again") from error
    try:
        notes = json.loads(found.get(NOTES, ""))
        version = notes["format"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
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


def _restore(notes: dict[str, Any], tensors: dict[str, Any]) -> Trace:
    attention_maps = [
        restore_map(attention_map, without_prefix(tensors, f"look.{number}"))
        for number, attention_map in enumerate(notes["looks"])
    ]
    trace = Trace(
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
    check_words(trace)
    check_tree(trace)
    for attention_map in trace.attention:
        check_map(attention_map)
    check_sides(trace)
    check_layers(trace)
    return trace


def _step_notes(step: OutputToken) -> list[Any]:
    return [step.piece, step.log_prob, step.replayed, [[each.piece, each.log_prob] for each in step.alternatives]]


def _step(notes: list[Any]) -> OutputToken:
    piece, log_prob, replayed, alternatives = notes
    return OutputToken(piece, log_prob, replayed, tuple(TokenAlternative(*each) for each in alternatives))


def check_words(trace: Trace) -> None:
    """Raise unless all that is shown as words and numbers is."""
    pieces = [*trace.source, *trace.read, *(step.piece for step in trace.steps)]
    others = [each for step in trace.steps for each in step.alternatives]
    words = [*(getattr(trace, name) for name in WORDS), *pieces, *(each.piece for each in others)]
    if wrong := [word for word in words if not isinstance(word, str)]:
        raise ValueError(f"what was read and said must be text, got {wrong[0]!r}")
    numbers = [x for step in trace.steps for x in (step.log_prob, step.replayed)] + [each.log_prob for each in others]
    if wrong := [x for x in numbers if type(x) not in {int, float} or abs(x) == inf]:
        raise ValueError(f"log-probabilities must be numbers, got {wrong[0]!r}")


def check_tree(trace: Trace) -> None:
    """Raise unless each node follows its parent and has a text, and the path ends at a node of it."""
    tree, n = trace.tree, len(trace.tree)
    for name in ("parents", "tokens", "log_probs", "fates"):
        array = getattr(tree, name)
        if array.shape != (n,) or array.dtype.kind != ("f" if name == "log_probs" else "i") or np.isinf(array).any():
            raise ValueError(f"{name} of the tree must be {n} numbers, got {array.dtype} of the shape {array.shape}")
    wrong = (tree.parents < ROOT) | (tree.parents >= np.arange(n)) | (tree.fates < 0) | (tree.fates >= len(FATES))
    if wrong.any():
        number = int(wrong.argmax())
        got = f"{tree.parents[number]} and {tree.fates[number]}"
        raise ValueError(f"node {number} of the tree must have a parent before it and a known fate, got {got}")
    if bad := [token for token in tree.tokens.tolist() if not isinstance(tree.token_texts.get(token), str)]:
        raise ValueError(f"each token of the tree must have a text, got none for {bad[0]}")
    limit = LARGEST_DECODE["length_penalty"]
    if type(tree.length_penalty) not in {int, float} or not abs(tree.length_penalty) <= limit:
        raise ValueError(f"length_penalty must be a number of at most {limit}, got {tree.length_penalty!r}")
    for node in (tree.best, trace.end_node):
        if type(node) is not int or not min(n - 1, 0) <= node < max(n, 0):
            raise ValueError(f"a path must end at a node of the tree, 0 … {n - 1}, got {node!r}")
    if n and len(tree.path(trace.end_node)) != len(trace.steps):
        raise ValueError(f"the path to node {trace.end_node} must have {len(trace.steps)} tokens")


def check_map(attention_map: AttentionMap) -> None:
    """Raise unless the numbers of one attention fit each other, and weights can be made of them."""
    if attention_map.kind not in KINDS or type(attention_map.layer) is not int:
        where = f"{attention_map.kind!r} and {attention_map.layer!r}"
        raise ValueError(f"an attention must be of {', '.join(KINDS)} and of a layer, got {where}")
    attention_map.check()


def check_layers(trace: Trace) -> None:
    """Raise unless layers are counted without a gap, and there is a norm for each token of each sub-layer."""
    for kind in KINDS:
        layers = [each.layer for each in trace.attention if each.kind == kind]
        if layers != list(range(len(layers))):
            raise ValueError(f"the layers of {kind} must be counted from 0, got {layers}")
    for norms in trace.residual_norms:
        if norms.stack not in {"encoder", "decoder"} or type(norms.layer) is not int or not _is_text(norms.sublayer):
            where = f"{norms.stack!r}, {norms.layer!r}, {norms.sublayer!r}"
            raise ValueError(f"norms must be of a stack, a layer and a sub-layer, got {where}")
        n = len(trace.source if norms.stack == "encoder" else trace.read)
        for part in (norms.before, norms.update, norms.after):
            check_numbers("a norm", part, (n,))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
