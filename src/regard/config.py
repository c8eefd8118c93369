"""Settings: frozen dataclasses that hold every default once, read from TOML."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import GenericAlias
from typing import Any, TypeVar, get_args

T = TypeVar("T")


@dataclass(frozen=True)
class PartSettings:
    """One exchangeable part: its key in a table, and the keyword arguments that differ from its own defaults."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HeadsSettings:
    """One multi-head attention layer; inputs are `d_model` wide unless a width of their own is given."""

    d_model: int = 512
    n_heads: int = 8
    d_query: int | None = None
    d_key: int | None = None
    d_value: int | None = None
    bias: bool = True
    attention: PartSettings = PartSettings("scaled_dot")
    position: PartSettings = PartSettings("none")


@dataclass(frozen=True)
class DataSettings:
    """Where the text lies; each source is a file, two aligned files joined by a comma, or `-`."""

    form: str = "pairs"  # of sentences; or "text", which runs on, or "documents", one on each line
    columns: tuple[int, ...] = ()  # that make up a document, counted from 1; all of a line where none are given
    train: tuple[str, ...] = ()
    # How often an epoch sees each pair of a training source, such as 2.5; once where none are given. A pair that stands
    # in several sources belongs to the first.
    weights: tuple[float, ...] = ()
    tags: tuple[str, ...] = ()  # of text.symbols, one set before each source sentence of a training source; "" is none
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()  # files whose sentences stay out of training on either side, besides valid and test
    # Pairs or documents split off where no validation text is given, a tenth of them at most; of a running text it is
    # the last tenth.
    valid_size: int = 1000
    reverse: bool = False  # each source's second language is translated into its first
    src_lang: str = "src"
    tgt_lang: str = "tgt"


@dataclass(frozen=True)
class TextSettings:
    """How strings become ids."""

    tokenizer: str | None = None  # a model's folder whose pieces are used; learned from the text where none is named
    kind: str = "unigram"  # or "bpe", or "characters", which keep white space as it is
    vocab_size: int = 8000
    joint: bool = True  # one vocabulary for both sides
    byte_fallback: bool = True
    character_coverage: float | None = None  # by the script of the text where none is given
    symbols: tuple[str, ...] = ()  # pieces that are never split, such as "<bt>"
    sampling: float = 0.0  # chance-based segmentation in training: unigram sampling's alpha or BPE's dropout
    variants: int = 8  # segmentations of each side that are stored where there is sampling
    max_len: int = 256  # pieces of a side; longer pairs are left out of training, a running text is cut
    max_ratio: float = 4.0  # of the sides' lengths in pieces; pairs beyond it are counted as outliers and left out


@dataclass(frozen=True)
class ModelSettings:
    """A sequence-to-sequence model: its family, its sizes and its exchangeable parts."""

    family: str = "transformer"  # or "recurrent", or "decoder", which reads nothing but what it wrote
    n_encoder_layers: int = 6  # a decoder has none
    n_decoder_layers: int = 6
    d_model: int = 512
    n_heads: int = 8
    d_ff: int = 2048
    activation: str = "relu"
    norm: str = "layer"
    norm_place: str = "after"  # the residual sum, as in the paper, or "before" each sub-layer
    dropout: float = 0.1
    d_embedding: int | None = None  # width of the codes from which token vectors are made, where tables are factored
    tie: str = "all"  # source, target and output share one table; or "target" and output do, or "none"
    attention: PartSettings = PartSettings("scaled_dot")
    position: PartSettings = PartSettings("sinusoidal")


@dataclass(frozen=True)
class DecodeSettings:
    """How the next token is chosen."""

    method: str = "beam"  # or "greedy" or "sample"
    beam: int = 5
    n_best: int = 1
    length_penalty: float = 1.0  # hypotheses compare by log-probability / length ** this
    max_ratio: float = 2.0  # a target has at most this many times the source's pieces …
    max_extra: int = 20  # … and so many more; of a decoder's text, the pieces after the prompt
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    batch_tokens: int = 4096  # source pieces in a batch, padding included


@dataclass(frozen=True)
class TrainSettings:
    """How a model learns."""

    batch_tokens: int = 4096  # target slots in one process's batch, padding included
    accumulate: int = 1  # batches in one step
    max_epochs: int | None = 30
    max_steps: int | None = None
    max_minutes: float | None = None
    lr: float = 1e-3
    schedule: str = "inverse_sqrt"  # or "cosine", which needs max_steps, or "constant"
    warmup: int = 1000
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    clip: float | None = 1.0
    label_smoothing: float = 0.1
    r_drop: float = 0.0  # weight of the disagreement of two passes with different dropout, such as 5; doubles the work
    init: str | None = None  # the model that learns on: a bundled one's name or a folder, as --init says
    vectors: str = "random"  # or "skip_gram" or "cbow": tables start from vectors learned on the same text
    ema: float | None = None  # weight of the past in a running mean of the parameters, such as 0.999
    average: int = 1  # last checkpoints whose mean is the final model, besides the best one
    valid_every: int = 500
    valid_sentences: int = 500  # translated at each validation, the first of the validation text
    log_every: int = 50
    save_every: int = 500
    keep: int = 3  # newest checkpoints
    stop_on: str = "bleu"  # or "loss"
    patience: int | None = 10  # validations without a better one
    precision: str = "auto"  # "bfloat16" where the device has it, else "float32"
    device: str = "auto"
    shard: bool = False  # FSDP2 instead of DDP, for models that do not fit one device
    seed: int = 0


@dataclass(frozen=True)
class Settings:
    """Everything that makes a run what it is."""

    data: DataSettings = DataSettings()
    text: TextSettings = TextSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    decode: DecodeSettings = DecodeSettings()


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {
        "text": {"vocab_size": 4000},
        "model": {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 128, "n_heads": 4, "d_ff": 512},
        "train": {"batch_tokens": 2048, "lr": 2e-3, "warmup": 400, "valid_every": 100, "save_every": 100},
    },
    "small": {
        "text": {"vocab_size": 8000},
        "model": {"n_encoder_layers": 4, "n_decoder_layers": 4, "d_model": 256, "n_heads": 4, "d_ff": 1024},
    },
    "base": {"text": {"vocab_size": 16000}, "train": {"lr": 7e-4, "warmup": 4000}},
}
# What the recurrent family does differently at every size.
RECURRENT = {
    "family": "recurrent",
    "n_encoder_layers": 1,
    "n_decoder_layers": 1,
    "n_heads": 1,
    "dropout": 0.2,
    "attention": {"name": "additive"},
    "position": {"name": "none"},
}
# And what the decoder does: it learns from text alone, is judged by its loss, and draws what it writes.
DECODER = {
    "data": {"form": "text"},
    "text": {"kind": "characters"},
    "model": {"family": "decoder", "n_encoder_layers": 0, "norm_place": "before", "position": {"name": "rotary"}},
    "train": {"label_smoothing": 0.0, "stop_on": "loss"},
    "decode": {"method": "sample", "max_extra": 300},
}
FAMILIES: dict[str, dict[str, dict[str, Any]]] = {
    "transformer": {},
    "recurrent": {"model": RECURRENT},
    "decoder": DECODER,
}


def preset(name: str, family: str = "transformer") -> dict[str, dict[str, Any]]:
    """Gives the tables of a preset for one family of models."""
    return merge(choose(PRESETS, name, "preset"), choose(FAMILIES, family, "family"))


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Lays tables over each other, later ones winning key by key; a part with another name is replaced whole."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            old = result.get(key)
            same_part = (
                isinstance(old, Mapping)
                and isinstance(value, Mapping)
                and value.get("name", old.get("name")) == old.get("name")
            )
            result[key] = merge(old, value) if same_part else value  # pyright: ignore[reportArgumentType]
    return result


def parse_override(text: str) -> dict[str, Any]:
    """Reads one `a.b=c` of the command line; the value is TOML, or a plain word."""
    path, sign, value = text.partition("=")
    if not sign or not path.strip():
        raise ValueError(f"a setting must look like train.lr=3e-4, got {text!r}")
    parsed: Any
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for key in reversed(path.strip().split(".")):
        parsed = {key: parsed}
    return parsed


def choose(table: Mapping[str, T], name: str, what: str) -> T:
    """Looks a name up; an unknown one is answered with the nearest and all valid ones."""
    if name not in table:
        raise ValueError(unknown(name, list(table), what))
    return table[name]


def unknown(name: str, valid: list[str], what: str) -> str:
    """Words the answer to an unknown name."""
    near = get_close_matches(name.lower().replace("-", "_"), valid, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what} {name!r}: {hint}valid are {', '.join(valid)}"


def read_toml(cls: type[T], path: Path) -> T:
    """Reads settings of one class from a TOML file that lists only what differs from the defaults."""
    try:
        return parse_settings(cls, tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error


def parse_settings(cls: type[T], table: Mapping[str, Any], where: str = "") -> T:
    """Makes settings from nested tables; unknown keys and values of another type are refused."""
    if cls is PartSettings:
        return make_part(table, where)  # pyright: ignore[reportReturnType]
    types = {f.name: f.type for f in fields(cls)}  # pyright: ignore[reportArgumentType]
    for key in table:
        if key not in types:
            raise ValueError(unknown(where + key, [where + name for name in types], "setting"))
    return cls(**{key: check_value(types[key], value, where + key) for key, value in table.items()})


def make_part(table: Mapping[str, Any], where: str = "") -> PartSettings:
    """Reads `{name = "...", option = value, ...}`."""
    if not isinstance(table.get("name"), str):
        raise ValueError(f"{where}name must say which part to use, got {table.get('name')!r}")
    return PartSettings(table["name"], {key: value for key, value in table.items() if key != "name"})


def check_value(expected: Any, value: Any, where: str) -> Any:
    """Gives a value of the expected type, or raises ValueError naming the setting; a whole number may be a float."""
    if is_dataclass(expected):
        if not isinstance(value, Mapping):
            raise ValueError(f"{where} must be a table of settings, got {value!r}")
        return parse_settings(expected, value, where + ".")  # pyright: ignore[reportArgumentType]
    if isinstance(expected, GenericAlias):
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{where} must be a list, got {value!r}")
        return tuple(check_value(get_args(expected)[0], item, where) for item in value)
    if value == "none" and isinstance(None, expected):  # TOML has no word for nothing
        return None
    if type(value) is int and isinstance(1.0, expected):
        return float(value)
    # bool is a subclass of int in Python; a setting that wants a number does not take `true`.
    if (isinstance(value, bool) and expected is not bool) or not isinstance(value, expected):
        raise ValueError(f"{where} must be {getattr(expected, '__name__', expected)}, got {value!r}")
    return value
