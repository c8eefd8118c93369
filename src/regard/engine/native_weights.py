"""What the C++ library packs: a Transformer's sizes, its parameters where they lie, and its position codes."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import cos, inf, pi, sin
from pathlib import Path
from typing import Any

from regard.config import ModelSettings, PartSettings
from regard.native import Int8Rows, Matrix, ModelConfig, Numbers
from regard.shapes import Array, Float, np

NORM = {"layer": 0, "rms": 1}
NORM_EPS = {"layer": 1e-5, "rms": 2.0**-23}  # as in PyTorch
ACTIVATION = {"relu": 0, "gelu": 1, "silu": 2}
PRECISION = {"float32": 0, "int8": 1}
MAPS = ("w_q", "w_k", "w_v", "w_o")

# From a range of positions to what each adds to its token and, beside it, the cosines and sines of its rotations, in
# float32: (T, C) numbers one after another.
Codes = Callable[[int, int], Numbers]


@dataclass(frozen=True, eq=False)
class TransformerWeights:
    """A Transformer by the names of its plain modules; PyTorch is not needed to make or to pack one."""

    n_heads: int
    norm: str
    norm_eps: float  # of norms without a number of their own among the arrays
    norm_first: bool
    activation: str
    d_rotary: int  # features of a head where positions rotate queries and keys, else 0
    adds_positions: bool  # to the tokens; a scheme that does may have a code of zeros
    limit: int | None  # tokens that a target may have, where positions end
    d_model: int
    src_table: Matrix  # (V1, D)
    tgt_table: Matrix  # (V, D)
    output_table: Matrix  # (V, D)
    arrays: Mapping[str, Matrix]
    n_layers: tuple[int, int]  # of encoder and decoder
    src_codes: Codes
    tgt_codes: Codes
    scale_embedding: bool = True  # by √D

    @property
    def embedding_norm(self) -> bool:
        """Whether vectors of tokens with their positions are normalised."""
        return "src.norm.weight" in self.arrays

    @property
    def output_bias(self) -> Matrix | None:
        """The numbers that are added to logits, (V)."""
        return self.arrays.get("output.bias")

    def config(self, precision: str) -> ModelConfig:
        """Return the sizes as C++ takes them."""
        d_ff, D = len(self.arrays["encoder.layers.0.feed_forward.inner.bias"]), self.d_model
        vocab_sizes = len(self.src_table), len(self.output_table)
        parts = NORM[self.norm], self.norm_first, ACTIVATION[self.activation]
        parts = (*parts, PRECISION[precision], self.d_rotary, self.scale_embedding, self.embedding_norm)
        return ModelConfig(D, self.n_heads, d_ff, *vocab_sizes, *self.n_layers, *parts)

    def parameters(self) -> Iterator[Matrix | None]:
        """Yield all arrays in the order in which `model.h` takes them; a bias or norm that is not there is None."""
        yield self.src_table
        yield self.tgt_table
        if self.embedding_norm:
            yield from self._norm("src.norm")
            yield from self._norm("tgt.norm")
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
        yield self.output_bias

    def _self_attention(self, layer: str) -> Iterator[Matrix | None]:
        q, k, v, out = (f"{layer}.attention.{name}" for name in MAPS)
        yield from self._linear(q, k, v)
        yield from self._linear(out)
        yield from self._norm(f"{layer}.after_attention.norm")

    def _feed_forward(self, layer: str) -> Iterator[Matrix | None]:
        yield from self._linear(f"{layer}.feed_forward.inner")
        yield from self._linear(f"{layer}.feed_forward.outer")
        yield from self._norm(f"{layer}.after_feed_forward.norm")

    def _linear(self, *names: str) -> Iterator[Matrix | None]:
        """Yield maps of the same input, which C++ computes as one: all weights, then all biases."""
        for name in names:
            yield self.arrays[f"{name}.weight"]
        for name in names:
            yield self.arrays.get(f"{name}.bias")

    def _norm(self, name: str) -> Iterator[Matrix | None]:
        yield self.arrays[f"{name}.weight"]
        yield self.arrays.get(f"{name}.bias")
        eps = self.arrays.get(f"{name}.eps")
        yield memoryview(array("f", [self.norm_eps if eps is None else float(eps)]))  # pyright: ignore[reportArgumentType]


def as_floats(matrix: Matrix) -> Float[Array, "*shape"]:
    """Return the numbers of a matrix in float32, which stay where they lie if they are."""
    if isinstance(matrix, Int8Rows):
        return np.asarray(matrix.values) * np.asarray(matrix.scales).astype(np.float32)[:, None]
    return np.asarray(matrix, np.float32)


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
    arrays: Mapping[str, Matrix],
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
    src_codes = make_codes(settings, arrays.get("src.position.table"))
    learned = arrays.get("tgt.position.table")
    tgt_codes = src_codes if learned is None else make_codes(settings, learned)
    return TransformerWeights(
        settings.n_heads,
        settings.norm,
        NORM_EPS[settings.norm],
        settings.norm_place == "before",
        settings.activation,
        d_head if rotates else 0,
        settings.position.name not in {"none", "rotary"},
        position_limit(settings.position),
        settings.d_model,
        src,
        tgt,
        output,
        arrays,
        (settings.n_encoder_layers, settings.n_decoder_layers),
        src_codes,
        tgt_codes,
        settings.scale_embedding,
    )


def _table(arrays: Mapping[str, Matrix], side: str, settings: ModelSettings) -> Matrix:
    if settings.d_embedding is None:
        return arrays[f"{side}.table.weight"]
    return as_floats(arrays[f"{side}.table.codes.weight"]) @ as_floats(arrays[f"{side}.table.up.weight"]).T


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
    if settings.embedding_norm:
        shapes |= _norm_shapes("src.norm", settings) | _norm_shapes("tgt.norm", settings)
    if settings.output_bias:
        shapes["output.bias"] = (vocab_sizes[1],)
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


class PositionRows:
    """The codes of positions by the scheme's own formula, each computed when it is first needed.

    `position/` has the definitions, and tests compare. Rows of plain numbers cost 50 µs each, once.
    """

    def __init__(self, settings: ModelSettings, table: Matrix | None):
        D, part = settings.d_model, settings.position
        d_rotary = D // settings.n_heads if part.name == "rotary" else 0
        self.added = POSITION_CODES[part.name](D, part, None if table is None else as_floats(table))
        self.turned = rotary_codes(d_rotary, part)
        self.width, self.limit = D + d_rotary, position_limit(part)
        self.known = array("f")

    def __call__(self, first: int, end: int) -> array:
        if self.limit is not None and end > self.limit:
            raise ValueError(
                f"positions must be below {self.limit}, the end of the table, got {end - 1}: build a larger table"
            )
        known = self.known
        if len(known) < end * self.width:
            known = known[:]  # another thread may be reading the old one
            for position in range(len(known) // self.width, end):
                known.extend(self.added(position))
                known.extend(self.turned(position))
            self.known = known
        return known[first * self.width : end * self.width]


def make_codes(settings: ModelSettings, table: Matrix | None) -> Codes:
    """Return the codes of a model's positions."""
    return PositionRows(settings, table)


# From a position to the numbers that are added to its token.
Row = Callable[[int], Sequence[float]]


def sinusoidal_codes(D: int, part: PartSettings, table: Array | None) -> Row:
    """Interleave sines and cosines, `ω_i = base^(−2i/D)`."""
    frequencies = [part.options.get("base", 10000.0) ** (-i / D) for i in range(0, D, 2)]
    return lambda position: [f(position * frequency) for frequency in frequencies for f in (sin, cos)][:D]


def half_wave_codes(D: int, part: PartSettings, table: Array | None) -> Row:
    """Repeat `sin(πp / L), cos(πp / L)`."""
    step = pi / part.options.get("max_len", 1024)
    return lambda position: ([sin(position * step), cos(position * step)] * D)[:D]


def index_codes(D: int, part: PartSettings, table: Array | None) -> Row:
    """Repeat p."""
    return lambda position: [float(position)] * D


def learned_codes(D: int, part: PartSettings, table: Array | None) -> Row:
    """Look up a row of the table."""
    assert table is not None, "a learned scheme has its table among the arrays"
    return lambda position: table[position].tolist()


def no_codes(D: int, part: PartSettings, table: Array | None) -> Row:
    """Add nothing."""
    return lambda position: [0.0] * D


def rotary_codes(d_rotary: int, part: PartSettings) -> Row:
    """Interleave the cosine and sine of the angle by which each pair of features turns; a last odd one stays."""
    even = d_rotary // 2 * 2
    frequencies = [part.options.get("base", 10000.0) ** (-i / even) for i in range(0, even, 2)]
    still = [1.0] * (d_rotary - even)
    return lambda position: [f(position * frequency) for frequency in frequencies for f in (cos, sin)] + still


POSITION_CODES: dict[str, Callable[[int, PartSettings, Array | None], Row]] = {
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
