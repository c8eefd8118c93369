"""Models of Transformers as ours: MarianMT, BART, mBART, Pegasus, M2M100 and NLLB.

They are one model in our terms: a Transformer whose norms come before or after, whose positions are a table of vectors
to add, with a norm of the embeddings or without. Their positions are kept as tables, as their program rounds them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log
from typing import Literal

from regard.checkpoint import CONFIG
from regard.config import ModelSettings, PartSettings, unknown
from regard.engine.native_weights import check_shapes, make_codes
from regard.foreign.folder import ForeignFolder, StoredNumbers
from regard.foreign.vocabulary import Numbering, Vocabulary
from regard.padding import EOS
from regard.shapes import Array, np


@dataclass(frozen=True)
class Architecture:
    """How models of a `model_type` differ from each other."""

    title: str
    norm_place: Literal["before", "after"]
    embedding_norm: bool
    positions: Literal["halves", "learned", "shifted"]  # see `position_rows`


ARCHITECTURES = {
    "marian": Architecture("MarianMT", "after", False, "halves"),
    "pegasus": Architecture("Pegasus", "before", False, "halves"),
    "bart": Architecture("BART", "after", True, "learned"),
    "mbart": Architecture("mBART", "before", True, "learned"),
    "m2m_100": Architecture("M2M100 and NLLB", "before", False, "shifted"),
}
MAPS = {"w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "out_proj"}
# Our names inside a layer and theirs; the norm of each sub-layer stands before it or after it, as in the class.
ATTENTIONS = {"attention": "self_attn", "cross_attention": "encoder_attn"}
OTHERS = {"feed_forward.inner": "fc1", "feed_forward.outer": "fc2", "after_feed_forward.norm": "final_layer_norm"}
PARTS = ("weight", "bias")
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
SIDES = ("encoder", "decoder")
OFFSET = 2  # rows of a table of learned positions before the first
UNWRITTEN = -1e4  # the logit of an id that is read alone: no other comes near it, and its probability is 0
IGNORED = ("encoder.version", "decoder.version", "position_ids", "embed_positions.weights")


def architecture(folder: ForeignFolder) -> Architecture:
    """Return what a folder's model is; refuse one that is none of these, by its name and the nearest that is."""
    kind = folder.config.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        known = unknown(str(kind), list(ARCHITECTURES), "model_type")
        raise ValueError(f"{folder.path / CONFIG}: {known}")
    return ARCHITECTURES[kind]


def table_sizes(folder: ForeignFolder) -> tuple[int, int]:
    """Return how many ids a source and a target may have."""
    size = folder.whole("vocab_size")
    apart = folder.config.get("model_type") == "marian" and not folder.flag("share_encoder_decoder_embeddings", True)
    return size, folder.whole("decoder_vocab_size", size) if apart else size


def model_settings(folder: ForeignFolder) -> ModelSettings:
    """Return a model's settings but for what its arrays tell: how tables are shared, positions, a bias of logits."""
    made, where = architecture(folder), folder.path / CONFIG
    pairs = {}
    for ours, theirs in (("n_heads", "attention_heads"), ("d_ff", "ffn_dim")):
        pairs[ours] = both = [folder.whole(f"{side}_{theirs}") for side in SIDES]
        if both[0] != both[1]:
            raise ValueError(f"{where}: {theirs} of encoder and decoder must be equal, got {both[0]} and {both[1]}")
    activation = folder.config.get("activation_function", "gelu")
    if activation not in ACTIVATIONS:
        raise ValueError(f"{where}: {unknown(str(activation), list(ACTIVATIONS), 'activation_function')}")
    n_layers = [folder.whole(f"{side}_layers") for side in SIDES]
    dropout = folder.config.get("dropout", 0.1)
    settings = ModelSettings(
        n_encoder_layers=n_layers[0],
        n_decoder_layers=n_layers[1],
        d_model=folder.whole("d_model"),
        n_heads=pairs["n_heads"][0],
        d_ff=pairs["d_ff"][0],
        activation=ACTIVATIONS[activation],
        norm_place=made.norm_place,
        dropout=float(dropout) if type(dropout) in {int, float} and 0 <= dropout < 1 else 0.1,
        scale_embedding=folder.flag("scale_embedding", False),
        embedding_norm=made.embedding_norm,
    )
    if min(*n_layers, settings.d_model, settings.n_heads, settings.d_ff) < 1:
        raise ValueError(f"{where}: sizes must be 1 or more, got {settings}")
    if settings.d_model % settings.n_heads:
        raise ValueError(
            f"{where}: d_model must be divisible by n_heads, got {settings.d_model} and {settings.n_heads}"
        )
    return settings


@dataclass(frozen=True, eq=False)
class Tables:
    """Their names of the three tables of vectors; those of one name are one."""

    src: str
    tgt: str
    output: str

    @property
    def tie(self) -> Literal["all", "target", "inputs", "none"]:
        """Name how they are shared as our settings do."""
        if self.src == self.tgt:
            return "all" if self.tgt == self.output else "inputs"
        return "target" if self.tgt == self.output else "none"


SHARED, HEAD = "model.shared.weight", "lm_head.weight"
ENCODES, DECODES = (f"model.{side}.embed_tokens.weight" for side in SIDES)
BIAS = "final_logits_bias"


def find_tables(folder: ForeignFolder, names: Mapping[str, object]) -> Tables:
    """Tell which array is which table: one that is tied is stored once, under any of its names."""
    tied = folder.flag("tie_word_embeddings", True)
    apart = folder.config.get("model_type") == "marian" and not folder.flag("share_encoder_decoder_embeddings", True)
    common = () if apart else (SHARED,)
    if tied and not apart:
        one = _first(names, SHARED, DECODES, ENCODES, HEAD)
        return Tables(one, one, one)
    target = _first(names, DECODES, *common, *([HEAD] if tied else []))
    return Tables(_first(names, ENCODES, *common), target, target if tied else _first(names, HEAD))


def _first(names: Mapping[str, object], *candidates: str) -> str:
    return next((name for name in candidates if name in names), candidates[0])


def shared_tables(tables: Tables, arrays: Mapping[str, StoredNumbers], vocabulary: Vocabulary) -> Tables:
    """Find out which tables of different names are one: a model that we exported names each by itself."""

    def alike(a: str, b: str) -> bool:
        return a == b or (arrays[a].shape == arrays[b].shape and np.array_equal(arrays[a].floats(), arrays[b].floats()))

    joint = vocabulary.src is vocabulary.tgt
    src = tables.tgt if joint and alike(tables.src, tables.tgt) else tables.src
    return Tables(src, tables.tgt, tables.tgt if alike(tables.tgt, tables.output) else tables.output)


def position_name(side: str) -> str:
    """Return their name of a stack's table of positions."""
    return f"model.{side}.embed_positions.weight"


def their_shapes(folder: ForeignFolder, settings: ModelSettings, tables: Tables) -> dict[str, tuple[int, ...]]:
    """Return the shape of each array that a model of these settings must have, by their names."""
    sizes, D, F = table_sizes(folder), settings.d_model, settings.d_ff
    shapes: dict[str, tuple[int, ...]] = {tables.src: (sizes[0], D), tables.tgt: (sizes[1], D)}
    shapes[tables.output] = (sizes[1], D)
    widths = {"fc1": (F, D), "fc2": (D, F)}
    for ours, theirs in array_names(settings).items():
        part = theirs.split(".")[-2]
        matrix = widths.get(part, (D,) if "norm" in part else (D, D))
        shapes[theirs] = matrix if ours.endswith(".weight") else matrix[:1]
    if architecture(folder).positions == "learned":
        n = folder.whole("max_position_embeddings", 1024) + OFFSET
        shapes |= {position_name(side): (n, D) for side in SIDES}
    return shapes


def array_names(settings: ModelSettings) -> dict[str, str]:
    """Return their name of each array that is taken over as it is, by ours."""
    names = {}
    for side, ours, n_layers in zip(SIDES, ("src", "tgt"), _n_layers(settings), strict=True):
        inside = dict(OTHERS)
        for attention, theirs in ATTENTIONS.items():
            if side == "decoder" or attention == "attention":
                inside |= {f"{attention}.{key}": f"{theirs}.{value}" for key, value in MAPS.items()}
                inside[f"after_{attention}.norm"] = f"{theirs}_layer_norm"
        parts = {f"{side}.layers.{n}.{a}": f"{side}.layers.{n}.{b}" for n in range(n_layers) for a, b in inside.items()}
        if settings.norm_place == "before":
            parts[f"{side}.last_norm"] = f"{side}.layer_norm"
        if settings.embedding_norm:
            parts[f"{ours}.norm"] = f"{side}.layernorm_embedding"
        names |= {f"{a}.{end}": f"model.{b}.{end}" for a, b in parts.items() for end in PARTS}
    return names


def _n_layers(settings: ModelSettings) -> tuple[int, int]:
    return settings.n_encoder_layers, settings.n_decoder_layers


def check_arrays(folder: ForeignFolder, arrays: Mapping[str, StoredNumbers], settings: ModelSettings) -> None:
    """Raise ValueError where a folder's arrays are not those that its config describes, before any is read."""
    expected = their_shapes(folder, settings, find_tables(folder, arrays))
    size, D = table_sizes(folder)[1], folder.whole("d_model")
    known = {SHARED: (size, D), ENCODES: (size, D), DECODES: (size, D), HEAD: (size, D), BIAS: (1, size)}
    places = [position_name(side) for side in SIDES if position_name(side) in arrays]
    known |= {name: (*arrays[name].shape[:1], D) for name in places}
    copies = {name: shape for name, shape in known.items() if name in arrays and name not in expected}
    found = {name: array.shape for name, array in arrays.items() if not name.endswith(IGNORED)}
    check_shapes(found, {**expected, **copies}, folder.path)


def convert_arrays(
    folder: ForeignFolder, arrays: Mapping[str, StoredNumbers], settings: ModelSettings, vocabulary: Vocabulary
) -> tuple[ModelSettings, dict[str, Array]]:
    """Return a model's settings and its arrays by our names, in float32."""
    tables = shared_tables(find_tables(folder, arrays), arrays, vocabulary)
    made = {ours: _floats(arrays[theirs]) for ours, theirs in array_names(settings).items()}
    own = {"src": (tables.src, vocabulary.src), "tgt": (tables.tgt, vocabulary.tgt)}
    own["output"] = (tables.output, vocabulary.tgt)
    kept = {"all": ("src",), "target": ("src", "tgt"), "inputs": ("src", "output"), "none": tuple(own)}[tables.tie]
    for side in kept:
        name, numbering = own[side]
        made[f"{side}.table.weight"] = reordered(_floats(arrays[name]), numbering)
    bias = logit_bias(folder, arrays, vocabulary.tgt)
    if bias is not None:
        made["output.bias"] = bias
    rows = [position_rows(folder, arrays, settings, side) for side in SIDES]
    position = name_positions(settings, rows)
    if position.name == "learned":
        made |= {f"{side}.position.table": table for side, table in zip(("src", "tgt"), rows, strict=True)}
    settings = replace(settings, tie=tables.tie, position=position, output_bias=bias is not None)
    return settings, made


def _floats(array: StoredNumbers) -> Array:
    return np.ascontiguousarray(array.floats(), np.float32)


def reordered(table: Array, numbering: Numbering) -> Array:
    """Return the rows of a table in our order; the table itself where that is theirs."""
    rows = np.array(numbering.rows)
    return table if len(rows) == len(table) and (rows == np.arange(len(table))).all() else table[rows]


def logit_bias(folder: ForeignFolder, arrays: Mapping[str, StoredNumbers], numbering: Numbering) -> Array | None:
    """Return what is added to logits: their bias, and what keeps our ids apart that are read alone; None for nothing.

    A search that forbids padding and makes probabilities anew afterwards gives it none, which a bias does as well.
    """
    size = table_sizes(folder)[1]
    theirs = _floats(arrays[BIAS]).reshape(-1) if BIAS in arrays else np.zeros(size, np.float32)
    bias = reordered(theirs, numbering).copy()
    bias[list(numbering.unwritten)] = UNWRITTEN
    if folder.generation.get("renormalize_logits") is True:
        bias[:EOS] = UNWRITTEN
    return bias if bias.any() else None


def position_rows(
    folder: ForeignFolder, arrays: Mapping[str, StoredNumbers], settings: ModelSettings, side: str
) -> Array:
    """Return the vectors that a stack adds to its tokens, one for each position, in float32 as their program has them.

    `halves` are sines and then cosines of `p / 10000^(2i/D)`, or what a file has in their place; `learned` are rows of
    a table after the first two; `shifted` are `halves` of `p + 2` with other wavelengths, the last of which is 10000.
    """
    kind, stored = architecture(folder).positions, arrays.get(position_name(side))
    if kind == "learned":
        assert stored is not None, "learned positions are among the arrays"
        return _floats(stored)[OFFSET:]
    if stored is not None and kind == "halves":
        return _floats(stored)
    n, D = folder.whole("max_position_embeddings", 1024), settings.d_model
    if kind == "halves":
        angles = np.arange(n)[:, None] / np.power(10000, 2 * (np.arange(D) // 2) / D)
        return np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], axis=1).astype(np.float32)
    half, first = D // 2, folder.whole("pad_token_id", 1) + 1
    frequencies = np.exp(np.arange(half, dtype=np.float32) * np.float32(-log(10000) / (half - 1)))
    angles = np.arange(first, first + n, dtype=np.float32)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles), np.zeros((n, D % 2), np.float32)], axis=1)


def name_positions(settings: ModelSettings, rows: list[Array]) -> PartSettings:
    """Name a table of positions: sinusoids where it has ours, as models have that we exported, else a learned one."""
    n, ours = len(rows[0]), replace(settings, position=PartSettings("sinusoidal"))
    codes = np.array(make_codes(ours, None)(0, n), np.float32).reshape(n, -1)
    if all(np.array_equal(table, codes) for table in rows):
        return PartSettings("sinusoidal")
    if all(not table.any() for table in rows):
        return PartSettings("none")
    return PartSettings("learned", {"max_len": n})


def needed_bytes(arrays: Mapping[str, StoredNumbers]) -> int:
    """Return the bytes that a model takes in float32."""
    return sum(4 * array.size for array in arrays.values())
