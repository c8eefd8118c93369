"""What the C++ library packs: a Transformer's sizes, parameters and position codes, as NumPy arrays."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, pi
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from regard.config import ModelSettings, PartSettings
from regard.native import ModelConfig

NORM = {"layer": 0, "rms": 1}
NORM_EPS = {"layer": 1e-5, "rms": float(np.finfo(np.float32).eps)}  # as in PyTorch
ACTIVATION = {"relu": 0, "gelu": 1, "silu": 2}
PRECISION = {"float32": 0, "int8": 1}
MAPS = ("w_q", "w_k", "w_v", "w_o")
KNOWN_POSITIONS = 512  # whose codes are kept; later ones are computed when a sentence gets there

# From a range of positions to what each adds to its token and, beside it, the cosines and sines of its rotations.
Codes = Callable[[int, int], Float[np.ndarray, "T C"]]


@dataclass(frozen=True, eq=False)
class TransformerWeights:
    """A Transformer by the names of its plain modules; PyTorch is not needed to make or to pack one."""

    n_heads: int
    norm: str
    norm_eps: float  # of norms without a number of their own among the arrays
    norm_first: bool
    activation: str
    d_rotary: int  # features of a head where positions rotate queries and keys, else 0
    limit: int | None  # tokens that a target may have, where positions end
    src_table: Float[np.ndarray, "V1 D"]
    tgt_table: Float[np.ndarray, "V D"]
    output_table: Float[np.ndarray, "V D"]
    arrays: Mapping[str, np.ndarray]
    n_layers: tuple[int, int]  # of encoder and decoder
    src_codes: Codes
    tgt_codes: Codes

    def config(self, precision: str) -> ModelConfig:
        """Return the sizes as C++ takes them."""
        d_ff, D = len(self.arrays["encoder.layers.0.feed_forward.inner.bias"]), self.src_table.shape[1]
        vocab_sizes = len(self.src_table), len(self.output_table)
        parts = NORM[self.norm], self.norm_first, ACTIVATION[self.activation]
        parts = (*parts, PRECISION[precision], self.d_rotary)
        return ModelConfig(D, self.n_heads, d_ff, *vocab_sizes, *self.n_layers, *parts)

    def parameters(self) -> Iterator[np.ndarray | None]:
        """Yield all arrays in the order in which `model.h` takes them; a bias or norm that is not there is None."""
        yield self.src_table
        yield self.tgt_table
        n_encoder, n_decoder = self.n_layers
        for n in range(n_encoder):
            yield from self._self_attention(f"encoder.layers.{n}")
            yield from self._feed_forward(f"encoder.layers.{n}")
        for n in range(n_decoder):
            layer = f"decoder.layers.{n}"
            cross = f"{layer}.cross_attention"
            yield from self._self_attention(layer)
            for names in ((f"{cross}.w_q",), (f"{cross}.w_k", f"{cross}.w_v"), (f"{cross}.w_o",)):
                yield from self._linear(*names)
            yield from self._norm(f"{layer}.after_cross_attention.norm")
            yield from self._feed_forward(layer)
        if self.norm_first:
            yield from self._norm("encoder.last_norm")
            yield from self._norm("decoder.last_norm")
        yield self.output_table
        yield None

    def _self_attention(self, layer: str) -> Iterator[np.ndarray | None]:
        q, k, v, out = (f"{layer}.attention.{name}" for name in MAPS)
        yield from self._linear(q, k, v)
        yield from self._linear(out)
        yield from self._norm(f"{layer}.after_attention.norm")

    def _feed_forward(self, layer: str) -> Iterator[np.ndarray | None]:
        yield from self._linear(f"{layer}.feed_forward.inner")
        yield from self._linear(f"{layer}.feed_forward.outer")
        yield from self._norm(f"{layer}.after_feed_forward.norm")

    def _linear(self, *names: str) -> Iterator[np.ndarray | None]:
        """Join some maps of the same input into one."""
        weight = np.concatenate([self.arrays[f"{name}.weight"] for name in names])
        yield weight
        own = np.zeros(len(weight) // len(names), np.float32)
        yield np.concatenate([self.arrays.get(f"{name}.bias", own) for name in names])

    def _norm(self, name: str) -> Iterator[np.ndarray | None]:
        yield self.arrays[f"{name}.weight"]
        yield self.arrays.get(f"{name}.bias")
        yield np.array([self.arrays.get(f"{name}.eps", self.norm_eps)], np.float32)


def packs(settings: ModelSettings) -> bool:
    """Tell whether the C++ library decodes models of these parts; all others stay with PyTorch."""
    sizes = (settings.n_encoder_layers, settings.n_decoder_layers, settings.d_model, settings.n_heads, settings.d_ff)
    return (
        settings.family == "transformer"
        and settings.attention.name == "scaled_dot"
        and settings.position.name in POSITION_CODES
        and all(OPTIONS[settings.position.name].get(name, _none)(x) for name, x in settings.position.options.items())
        and settings.norm in NORM
        and settings.norm_place in {"before", "after"}
        and settings.activation in ACTIVATION
        and settings.tie in {"all", "target", "inputs", "none"}
        and min(sizes) >= 1
        and settings.d_model % settings.n_heads == 0
    )


def from_arrays(
    settings: ModelSettings,
    arrays: Mapping[str, np.ndarray],
    shapes: "Shapes",
    vocab_sizes: tuple[int, int],
    path: Path,
) -> TransformerWeights:
    """Return the model that a folder's settings and arrays describe; raise ValueError where their shapes do not fit."""
    check_shapes(shapes, expected_shapes(settings, vocab_sizes), path)
    tables = {"src": "src", "tgt": "src" if settings.tie in {"all", "inputs"} else "tgt"}
    tables["output"] = "output" if settings.tie in {"inputs", "none"} else tables["tgt"]
    made = {name: _table(arrays, name, settings) for name in dict.fromkeys(tables.values())}
    src, tgt, output = (made[tables[side]] for side in ("src", "tgt", "output"))
    d_head = settings.d_model // settings.n_heads
    rotates = settings.position.name == "rotary"
    src_codes, tgt_codes = (make_codes(settings, arrays.get(f"{side}.position.table")) for side in ("src", "tgt"))
    return TransformerWeights(
        settings.n_heads,
        settings.norm,
        NORM_EPS[settings.norm],
        settings.norm_place == "before",
        settings.activation,
        d_head if rotates else 0,
        position_limit(settings.position),
        src,
        tgt,
        output,
        arrays,
        (settings.n_encoder_layers, settings.n_decoder_layers),
        src_codes,
        tgt_codes,
    )


def _table(arrays: Mapping[str, np.ndarray], side: str, settings: ModelSettings) -> np.ndarray:
    if settings.d_embedding is None:
        return np.ascontiguousarray(arrays[f"{side}.table.weight"])
    return arrays[f"{side}.table.codes.weight"] @ arrays[f"{side}.table.up.weight"].T


def expected_shapes(settings: ModelSettings, vocab_sizes: tuple[int, int]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array of a model, shared ones once, under the first of their names."""
    D = settings.d_model
    shapes: dict[str, tuple[int, ...]] = {}
    own = {"all": ("src",), "target": ("src", "tgt"), "inputs": ("src", "output"), "none": ("src", "tgt", "output")}
    for side in own[settings.tie]:
        V = vocab_sizes[side != "src"]
        if settings.d_embedding is None:
            shapes[f"{side}.table.weight"] = (V, D)
        else:
            shapes[f"{side}.table.codes.weight"] = (V, settings.d_embedding)
            shapes[f"{side}.table.up.weight"] = (D, settings.d_embedding)
    if settings.position.name == "learned":
        length = settings.position.options.get("max_len", 1024)
        shapes |= {f"{side}.position.table": (length, D) for side in ("src", "tgt")}
    for stack, n_layers, kinds in (
        ("encoder", settings.n_encoder_layers, ("attention",)),
        ("decoder", settings.n_decoder_layers, ("attention", "cross_attention")),
    ):
        for n in range(n_layers):
            shapes |= _layer_shapes(f"{stack}.layers.{n}", kinds, settings)
        if settings.norm_place == "before":
            shapes |= _norm_shapes(f"{stack}.last_norm", settings)
    return shapes


def _layer_shapes(layer: str, kinds: Sequence[str], settings: ModelSettings) -> dict[str, tuple[int, ...]]:
    D, F = settings.d_model, settings.d_ff
    maps = {f"{kind}.{name}": (D, D) for kind in kinds for name in MAPS}
    maps |= {"feed_forward.inner": (F, D), "feed_forward.outer": (D, F)}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in maps.items():
        shapes |= {f"{layer}.{name}.weight": shape, f"{layer}.{name}.bias": shape[:1]}
    for name in (*kinds, "feed_forward"):
        shapes |= _norm_shapes(f"{layer}.after_{name}.norm", settings)
    return shapes


def _norm_shapes(name: str, settings: ModelSettings) -> dict[str, tuple[int, ...]]:
    return {f"{name}.{part}": (settings.d_model,) for part in ("weight", "bias")[: 2 - (settings.norm == "rms")]}


Shapes = Mapping[str, tuple[int, ...]]


def check_shapes(found: Shapes, expected: Shapes, path: Path) -> None:
    """Raise ValueError for arrays that are not just those expected, of just these shapes."""
    missing, foreign = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    if missing or foreign:
        raise ValueError(f"{path}: these weights are of another model: missing {missing[:3]}, unknown {foreign[:3]}")
    for name, shape in expected.items():
        if found[name] != shape:
            shapes = f"{found[name]} instead of {shape}"
            raise ValueError(f"{path}: these weights are of another model: {name} is {shapes}")


def make_codes(settings: ModelSettings, table: np.ndarray | None) -> Codes:
    """Return the codes of positions by the scheme's own formula; `position/` has the definitions, tests compare."""
    D, part = settings.d_model, settings.position
    d_rotary = D // settings.n_heads if part.name == "rotary" else 0
    formula, limit = POSITION_CODES[part.name], position_limit(part)

    def compute(first: int, end: int) -> np.ndarray:
        if limit is not None and end > limit:
            raise ValueError(
                f"positions must be below {limit}, the end of the table, got {end - 1}: build a larger table"
            )
        positions = np.arange(first, end)
        added, rotations = formula(positions, D, part, table), rotary_codes(positions, d_rotary, part)
        return np.ascontiguousarray(np.concatenate([added, rotations], axis=1), dtype=np.float32)

    known = compute(0, min(limit or KNOWN_POSITIONS, KNOWN_POSITIONS))
    return lambda first, end: known[first:end] if end <= len(known) else compute(first, end)


def sinusoidal_codes(positions: np.ndarray, D: int, part: PartSettings, table: np.ndarray | None) -> np.ndarray:
    """Interleave sines and cosines, `ω_i = base^(−2i/D)`."""
    angles = positions[:, None] * part.options.get("base", 10000.0) ** (-np.arange(0, D, 2) / D)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(positions), -1)[:, :D]


def half_wave_codes(positions: np.ndarray, D: int, part: PartSettings, table: np.ndarray | None) -> np.ndarray:
    """Repeat `sin(πp / L), cos(πp / L)`."""
    angles = positions * (pi / part.options.get("max_len", 1024))
    return np.tile(np.stack([np.sin(angles), np.cos(angles)], axis=-1), (1, (D + 1) // 2))[:, :D]


def index_codes(positions: np.ndarray, D: int, part: PartSettings, table: np.ndarray | None) -> np.ndarray:
    """Repeat p."""
    return np.repeat(positions[:, None].astype(np.float64), D, axis=1)


def learned_codes(positions: np.ndarray, D: int, part: PartSettings, table: np.ndarray | None) -> np.ndarray:
    """Look up rows of the table."""
    assert table is not None, "a learned scheme has its table among the arrays"
    return table[positions]


def no_codes(positions: np.ndarray, D: int, part: PartSettings, table: np.ndarray | None) -> np.ndarray:
    """Add nothing."""
    return np.zeros((len(positions), D))


def rotary_codes(positions: np.ndarray, d_rotary: int, part: PartSettings) -> np.ndarray:
    """Interleave the cosine and sine of the angle by which each pair of features turns; a last odd one stays."""
    if not d_rotary:
        return np.zeros((len(positions), 0))
    even = d_rotary // 2 * 2
    angles = positions[:, None] * part.options.get("base", 10000.0) ** (-np.arange(0, even, 2) / even)
    pairs = np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(len(positions), -1)
    return np.concatenate([pairs, np.ones((len(positions), d_rotary - even))], axis=1)


POSITION_CODES = {
    "none": no_codes,
    "index": index_codes,
    "sinusoidal": sinusoidal_codes,
    "learned": learned_codes,
    "half_wave": half_wave_codes,
    "rotary": no_codes,
}


# What a scheme may be told, and of which values the library knows; PyTorch's modules say what is wrong with others.
Known = dict[str, Callable[[Any], bool]]
JOINED: Known = {"join": lambda x: x == "add"}
BASE: Known = {"base": lambda x: type(x) in {int, float} and 1 < x < inf}
LENGTH: Known = {"max_len": lambda x: type(x) is int and x >= 1}
OPTIONS: dict[str, Known] = {
    "none": {},
    "index": JOINED,
    "sinusoidal": JOINED | BASE,
    "learned": JOINED | LENGTH,
    "half_wave": JOINED | LENGTH,
    "rotary": BASE,
}


def _none(value: Any) -> bool:
    return False


def position_limit(part: PartSettings) -> int | None:
    """Return the number of positions of a scheme that has a last one."""
    return part.options.get("max_len", 1024) if part.name in {"learned", "half_wave"} else None
