"""Settings: frozen dataclasses that hold every default once, presets, TOML."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from math import isfinite
from types import GenericAlias
from typing import Any, Literal, TypeVar, get_args, get_origin

T = TypeVar("T")


@dataclass(frozen=True)
class PartSettings:
    """One exchangeable part: its name in a table, and the keyword arguments that differ from its defaults."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HeadsSettings:
    """One multi-head attention layer; inputs are `d_model` wide unless given a width."""

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
    """The training text; each source is a file, two aligned files joined by a comma, or `-` for standard input."""

    form: Literal["pairs", "text", "documents"] = "pairs"  # sentence pairs, running text, or one document a line
    columns: tuple[int, ...] = ()  # TSV columns that make up a document, counted from 1; all if empty
    train: tuple[str, ...] = ()
    # How often an epoch sees each pair of a training source, such as 2.5; once if empty. A pair that occurs in several
    # sources belongs to the first.
    weights: tuple[float, ...] = ()
    tags: tuple[str, ...] = ()  # one of text.symbols for each training source, put before its source sentences; or ""
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()  # files whose sentences are kept out of training, in addition to valid and test
    # Pairs or documents split off if there is no validation text, at most a tenth; of running text, the last tenth.
    valid_size: int = 1000
    reverse: bool = False  # translate from each source's second language into its first
    src_lang: str = "src"
    tgt_lang: str = "tgt"


@dataclass(frozen=True)
class TextSettings:
    """How strings become ids."""

    tokenizer: str | None = None  # the folder of a model whose tokenizer is reused; None trains one on the text
    kind: Literal["unigram", "bpe", "characters"] = "unigram"  # characters keep white space as it is
    vocab_size: int = 8000
    joint: bool = True  # one vocabulary for both sides
    byte_fallback: bool = True
    character_coverage: float | None = None  # None chooses by the script of the text
    symbols: tuple[str, ...] = ()  # tokens that are never split, such as "<bt>"
    simplify: bool = False  # fold Traditional Chinese to Simplified, in training text and in what the model reads
    sampling: float = 0.0  # subword regularisation in training: alpha of unigram sampling, or BPE dropout
    variants: int = 8  # segmentations stored for each side if sampling > 0
    max_len: int = 256  # tokens a side; longer pairs are left out of training, running text is cut
    max_ratio: float = 4.0  # of the sides' lengths in tokens; pairs beyond it are left out as outliers


@dataclass(frozen=True)
class ModelSettings:
    """A sequence-to-sequence model: its family, its sizes and its exchangeable parts."""

    family: Literal["transformer", "recurrent", "decoder"] = "transformer"  # "decoder": a decoder-only language model
    n_encoder_layers: int = 6  # 0 for a decoder
    n_decoder_layers: int = 6
    d_model: int = 512
    n_heads: int = 8
    d_ff: int = 2048
    activation: str = "relu"
    norm: str = "layer"
    norm_place: Literal["after", "before"] = (
        "after"  # the residual sum (post-norm), or before each sub-layer (pre-norm)
    )
    state_norm: Literal["none", "layer"] = "none"  # inside the GRUs of a recurrent model
    dropout: float = 0.1
    d_embedding: int | None = None  # width of a factorised embedding
    # One table of vectors for source, target and output; or for target and output, for source and target, for none.
    tie: Literal["all", "target", "inputs", "none"] = "all"
    scale_embedding: bool = True  # whether vectors of tokens are multiplied by √D before positions join them
    embedding_norm: bool = False  # a norm of vectors of tokens with their positions, before the first layer
    output_bias: bool = False  # a number for each target token that is added to its logit
    attention: PartSettings = PartSettings("scaled_dot")
    position: PartSettings = PartSettings("sinusoidal")

    def __post_init__(self) -> None:
        if self.state_norm != "none" and self.family != "recurrent":
            raise ValueError(
                f"model.state_norm must be 'none' in the family {self.family!r}, which has no recurrent states, got "
                f"{self.state_norm!r}: use model.norm, or the family 'recurrent'"
            )


# Far beyond what serves a search, so that no typing error and no foreign config fills the memory.
LARGEST_DECODE = {
    "beam": 1024,
    "n_best": 100_000,
    "length_penalty": 10.0,
    "max_ratio": 1000.0,
    "max_extra": 1_000_000,
    "temperature": 1e6,
    "batch_tokens": 1 << 24,
}
COLDEST = 1e-6  # below, log-probabilities divided by the temperature leave the range of float32


@dataclass(frozen=True)
class DecodeSettings:
    """How the next token is chosen."""

    method: Literal["beam", "greedy", "sample"] = "beam"
    beam: int = 5
    n_best: int = 1
    length_penalty: float = 1.0  # hypotheses are ranked by log-probability / length ** length_penalty
    # A sentence is done when as many as the beam have ended (full); when, besides, none in progress has a better score
    # at its present length than the worst of them (heuristic); or when none can get a better one (never).
    early_stopping: Literal["full", "heuristic", "never"] = "full"
    # A hypothesis that reaches the longest length ranks behind those that ended; or among them; or ends, at no cost.
    at_limit: Literal["behind", "among", "end"] = "behind"
    forced_bos: int | None = None  # the token that every target begins with, at no cost, such as that of its language
    max_ratio: float = 2.0  # a target has at most max_ratio times the source's tokens …
    max_extra: int = 20  # … plus max_extra; a decoder writes at most max_extra tokens after the prompt
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    batch_tokens: int = 4096  # source tokens in a batch, padding included
    # A text is translated sentence by sentence, as models are trained; or whole, unless it is longer than text.max_len.
    split: Literal["sentences", "overlong"] = "sentences"
    # Whether a part is searched for again whose target repeats itself, is empty, or lacks an address or a long number.
    retry: bool = True

    def __post_init__(self) -> None:
        for name, limit in LARGEST_DECODE.items():
            value = getattr(self, name)
            if not abs(value) <= limit:  # which no NaN is
                raise ValueError(f"decode.{name} must be a number of at most {limit:,}, got {value}")
        if 0 < self.temperature < COLDEST:
            given = f"{self.temperature}: for the likeliest use 'greedy'"
            raise ValueError(f"decode.temperature must be {COLDEST} or more, got {given}")


@dataclass(frozen=True)
class TrainSettings:
    """How a model is trained."""

    batch_tokens: int = 4096  # target tokens in one process's batch, padding included
    accumulate: int = 1  # batches in one step
    max_epochs: int | None = 30
    max_steps: int | None = None
    max_minutes: float | None = None
    lr: float = 1e-3
    schedule: Literal["inverse_sqrt", "cosine", "constant"] = "inverse_sqrt"  # cosine needs max_steps or max_minutes
    warmup: int = 1000
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    clip: float | None = 1.0
    label_smoothing: float = 0.1
    r_drop: float = 0.0  # weight of the R-Drop divergence of two forward passes, such as 5; doubles the work
    init: str | None = None  # the model to fine-tune: a bundled one's name or a folder, set by --init
    vectors: Literal["random", "skip_gram", "cbow"] = "random"  # initial embeddings; word2vec trains on the same text
    ema: float | None = None  # decay of an exponential moving average of the parameters, such as 0.999
    average: int = 1  # the mean of so many last checkpoints competes with the best model
    valid_every: int = 500
    valid_sentences: int = 500  # translated at each validation, the first of the validation text
    log_every: int = 50
    save_every: int = 500
    keep: int = 3  # newest checkpoints
    stop_on: Literal["bleu", "loss"] = "bleu"
    patience: int | None = 10  # validations without improvement
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 if the device supports it
    device: str = "auto"
    shard: bool = False  # FSDP2 instead of DDP, for models that do not fit one device
    seed: int = 0


@dataclass(frozen=True)
class Settings:
    """Everything that determines a run."""

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
# How the recurrent family differs at every size.
RECURRENT = {
    "family": "recurrent",
    "n_encoder_layers": 1,
    "n_decoder_layers": 1,
    "n_heads": 1,
    "dropout": 0.2,
    "attention": {"name": "additive"},
    "position": {"name": "none"},
}
# A decoder trains on text without translations, is validated by its loss, and samples.
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
    """Return the tables of a preset for one family of models."""
    return merge(choose(PRESETS, name, "preset"), choose(FAMILIES, family, "family"))


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables key by key, the last one winning; a part with another name is replaced as a whole."""
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


def choose(table: Mapping[str, T], name: str, what: str) -> T:
    """Look up a name, or raise ValueError with the nearest and all valid names."""
    if name not in table:
        raise ValueError(unknown(name, list(table), what))
    return table[name]


def unknown(name: str, valid: list[str], what: str) -> str:
    """Return the error message for an unknown name."""
    near = get_close_matches(name.lower().replace("-", "_"), valid, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what} {name!r}: {hint}valid are {', '.join(valid)}"


def parse_settings(cls: type[T], table: Mapping[str, Any], where: str = "") -> T:
    """Build settings from nested tables; raise ValueError for an unknown key or a value of the wrong type."""
    if cls is PartSettings:
        return make_part(table, where)  # pyright: ignore[reportReturnType]
    types = {f.name: f.type for f in fields(cls)}  # pyright: ignore[reportArgumentType]
    for key in table:
        if key not in types:
            raise ValueError(unknown(where + key, [where + name for name in types], "setting"))
    return cls(**{key: check_value(types[key], value, where + key) for key, value in table.items()})


def make_part(table: Mapping[str, Any], where: str = "") -> PartSettings:
    """Read `{name = "...", option = value, ...}`."""
    if not isinstance(table.get("name"), str):
        raise ValueError(f"{where}name must name a part, got {table.get('name')!r}")
    for key, value in table.items():
        if isinstance(value, float) and not isfinite(value):
            raise ValueError(f"{where}{key} must be a finite number, got {value}")
    return PartSettings(table["name"], {key: value for key, value in table.items() if key != "name"})


def check_value(expected: Any, value: Any, where: str) -> Any:
    """Return a value as the expected type, or raise ValueError naming the setting; an int is accepted as a float."""
    if is_dataclass(expected):
        if not isinstance(value, Mapping):
            raise ValueError(f"{where} must be a table of settings, got {value!r}")
        return parse_settings(expected, value, where + ".")  # pyright: ignore[reportArgumentType]
    if isinstance(expected, GenericAlias):
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{where} must be a list, got {value!r}")
        return tuple(check_value(get_args(expected)[0], item, where) for item in value)
    if get_origin(expected) is Literal:
        if value not in get_args(expected):
            raise ValueError(unknown(str(value), list(get_args(expected)), where))
        return value
    if value == "none" and isinstance(None, expected):  # TOML has no null
        return None
    if type(value) is int and isinstance(1.0, expected):
        return float(value)
    # bool is a subclass of int in Python, but `true` is not a number.
    if (isinstance(value, bool) and expected is not bool) or not isinstance(value, expected):
        raise ValueError(f"{where} must be {getattr(expected, '__name__', expected)}, got {value!r}")
    return value
