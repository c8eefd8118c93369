"""Write a Transformer's weights as Marian reads them: it computes the same function.

Marian multiplies rows by matrices (in, out), ours are (out, in). Its decoder begins with a vector of zeros where ours
begins with BOS, its own sinusoids have other frequencies than ours, and it scales embeddings by `√D` for sinusoids
alone. So positions are written as a learned table for each side, the decoder's first with BOS in it, and embeddings
scaled. Only models of its type `transformer-new` take such tables, whose arrays are named by where its C++ has them;
the decoder of its older `transformer` forgets to normalise the keys of earlier tokens where norms come first.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.config import ModelSettings
from regard.padding import BOS

NEVER = -1e4  # added to the logit of a token that must not be written
SETTINGS = "special:model.yml"  # the array that holds the settings, as text
BIN_VERSION, ALIGNMENT = 1, 256  # of a binary file; its arrays begin at such multiples of bytes
INT8, FLOAT32, INTGEMM8 = 0x101, 0x404, 0x10001  # as Marian numbers its types
MOST_INT8 = 127.0
SHORTLIST = 0xF11A48D5013417F5  # how a binary shortlist begins
PLACES = {"before": ("n", "a", "n"), "after": ("", "an", "")}  # what comes before, after and above the layers
HEADS = {"w_q": "qProj", "w_k": "kProj", "w_v": "vProj", "w_o": "oProj"}

Arrays = dict[str, np.ndarray]


def marian_arrays(
    ours: Mapping[str, np.ndarray], settings: ModelSettings, codes: np.ndarray, never: Sequence[int] = ()
) -> Arrays:
    """Return a model's arrays by Marian's names; tokens `never` to be written get a bias that forbids them.

    `codes` (T, D) are the positions' own vectors, as many as a sentence may have tokens.
    """
    assert settings.tie == "all" and settings.norm == "layer", "one table and norms of mean and variance"
    table, scale = ours["src.table.weight"], np.sqrt(settings.d_model)
    bias = np.zeros((1, len(table)))
    bias[0, list(never)] = NEVER
    first = codes.copy()
    first[0] += scale * table[BOS]
    made = {
        "encoder_Wemb": scale * table,
        "decoder_Wemb": scale * table,
        "decoder_ff_logit_out_Wt": table,
        "decoder_ff_logit_out_b": bias,
        "TransformerBatchEncoder->encoder->positionEmbedding->embeddings": codes,
        "TransformerBatchDecoder->decoder->positionEmbedding->embeddings": first,
    }
    for stack, n_layers in (("encoder", settings.n_encoder_layers), ("decoder", settings.n_decoder_layers)):
        for n in range(n_layers):
            made |= _layer(ours, stack, n, settings.norm_place == "before")
        if settings.norm_place == "before":
            made |= _norm(ours, f"{stack}.last_norm", f"TransformerBatch{stack.title()}->{stack}->postprocessor->norm")
    return {name: np.ascontiguousarray(array, np.float32) for name, array in made.items()}


def _layer(ours: Mapping[str, np.ndarray], stack: str, n: int, norm_first: bool) -> Arrays:
    kind = {"encoder": "TransformerEncoderLayer", "decoder": "TransformerDecoderLayerWithCrossAttention"}[stack]
    layer = f"{stack}.layers.{n}"
    theirs = f"TransformerBatch{stack.title()}->{stack}->layers->at({n})->as<marian::nn::{kind}>()"
    own = "selfAttentionBlock" if stack == "encoder" else "autoRegressiveBlock"
    blocks = {"attention": f"{own}->selfAttention"}
    if stack == "decoder":
        blocks["cross_attention"] = "crossAttentionBlock->crossAttention"
    place, made = "preprocessor" if norm_first else "postprocessor", {}
    for name, block in blocks.items():
        for head, their_head in HEADS.items():
            made |= _linear(ours, f"{layer}.{name}.{head}", f"{theirs}->{block}->{their_head}")
        made |= _norm(ours, f"{layer}.after_{name}.norm", f"{theirs}->{block.split('->')[0]}->{place}->norm")
    for n_map, (name, layer_kind) in enumerate((("inner", "LinearReluDropout"), ("outer", "Linear"))):
        maps = f"{theirs}->filterBlock->layers->at({n_map})->as<marian::nn::{layer_kind}>()"
        made |= _linear(ours, f"{layer}.feed_forward.{name}", maps)
    return made | _norm(ours, f"{layer}.after_feed_forward.norm", f"{theirs}->filterBlock->{place}->norm")


def _linear(ours: Mapping[str, np.ndarray], name: str, theirs: str) -> Arrays:
    return {f"{theirs}->weight": ours[f"{name}.weight"].T, f"{theirs}->bias": ours[f"{name}.bias"]}


def _norm(ours: Mapping[str, np.ndarray], name: str, theirs: str) -> Arrays:
    return {f"{theirs}->weight": ours[f"{name}.weight"], f"{theirs}->bias": ours[f"{name}.bias"]}


def marian_settings(settings: ModelSettings, vocab_size: int, max_len: int) -> dict[str, object]:
    """Return the settings by Marian's names."""
    before, after, above = PLACES[settings.norm_place]
    return {
        "type": "transformer-new",
        "version": "v1.12.0",
        "dim-vocabs": [vocab_size, vocab_size],
        "dim-emb": settings.d_model,
        "enc-depth": settings.n_encoder_layers,
        "dec-depth": settings.n_decoder_layers,
        "transformer-heads": settings.n_heads,
        "transformer-dim-ffn": settings.d_ff,
        "transformer-decoder-dim-ffn": settings.d_ff,
        "transformer-ffn-depth": 2,
        "transformer-decoder-ffn-depth": 2,
        "transformer-ffn-activation": settings.activation,
        "transformer-preprocess": before,
        "transformer-postprocess": after,
        "transformer-postprocess-emb": "",
        "transformer-postprocess-top": above,
        "transformer-decoder-autoreg": "self-attention",
        "transformer-train-position-embeddings": True,
        "max-length": max_len,
        "tied-embeddings": False,
        "tied-embeddings-src": False,
        "tied-embeddings-all": False,
        "lemma-dim-emb": 0,
    }


def as_text(settings: Mapping[str, object]) -> np.ndarray:
    """Return settings as YAML, of which JSON is a part, with the zero that ends a text in C."""
    text = "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
    return np.frombuffer(text.encode() + b"\0", np.int8)


def write_npz(path: Path, arrays: Arrays, settings: Mapping[str, object]) -> None:
    """Write a model in float32."""
    with path.open("wb") as file:
        np.savez(file, **{**arrays, SETTINGS: as_text(settings)})  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Item:
    """An array as it lies in a binary file."""

    kind: int
    shape: tuple[int, ...]
    content: bytes


def plain_item(array: np.ndarray) -> Item:
    """Keep an array as it is."""
    return Item(INT8 if array.dtype == np.int8 else FLOAT32, array.shape, array.tobytes())


def int8_item(rows: np.ndarray, shape: tuple[int, ...], kind: int = INTGEMM8) -> Item:
    """Put a matrix (out, in) in 8 bits with one scale for all of it; the factor that made it stands behind."""
    factor = MOST_INT8 / np.abs(rows).max()
    return Item(kind, shape, np.rint(rows * factor).astype(np.int8).tobytes() + np.float32(factor).tobytes())


def int8_items(arrays: Arrays) -> dict[str, Item]:
    """Put all matrices (in, out) of `marian_arrays` in 8 bits.

    The output layer too if it is the other way round, which Marian reads only where it has no shortlist.
    """
    outputs = "decoder_ff_logit_out_W"
    maps = {name for name, array in arrays.items() if array.ndim == 2 and name.endswith(("->weight", outputs))}
    return {
        name: int8_item(array.T, array.shape) if name in maps else plain_item(array) for name, array in arrays.items()
    }


def turn_outputs(arrays: Arrays) -> Arrays:
    """Name the output layer as Marian once did, when it was (in, out)."""
    turned = np.ascontiguousarray(arrays["decoder_ff_logit_out_Wt"].T)
    return {name: array for name, array in arrays.items() if not name.endswith("_Wt")} | {
        "decoder_ff_logit_out_W": turned
    }


def write_bin(path: Path, items: Mapping[str, Item], settings: Mapping[str, object]) -> None:
    """Write a model in Marian's binary form."""
    named = {**items, SETTINGS: plain_item(as_text(settings))}
    contents = [item.content + bytes(-len(item.content) % ALIGNMENT) for item in named.values()]
    with path.open("wb") as file:
        file.write(np.array([BIN_VERSION, len(named)], np.uint64).tobytes())
        for (name, item), content in zip(named.items(), contents, strict=True):
            file.write(np.array([len(name) + 1, item.kind, len(item.shape), len(content)], np.uint64).tobytes())
        file.write(b"".join(name.encode() + b"\0" for name in named))
        file.write(b"".join(np.array(item.shape, np.int32).tobytes() for item in named.values()))
        gap = -(file.tell() + 8) % ALIGNMENT
        file.write(np.uint64(gap).tobytes() + bytes(gap) + b"".join(contents))


def write_shortlist(path: Path, first: int, table: np.ndarray) -> None:
    """Write the `first` ids, which may always be written, and those that go with each source piece (n_src, most).

    −1 stands where there are no more.
    """
    offsets = np.concatenate([[0], np.cumsum((table >= 0).sum(axis=1))]).astype(np.uint64)
    ids = table[table >= 0].astype(np.uint32)
    head = [SHORTLIST, 0, first, table.shape[1], len(offsets), len(ids)]  # 0 for a checksum, which nobody asks for
    path.write_bytes(np.array(head, np.uint64).tobytes() + offsets.tobytes() + ids.tobytes())


def write_vocabulary(path: Path, words: Sequence[str]) -> None:
    """Write words by their ids as Marian reads them."""
    path.write_text("".join(f"{json.dumps(word)}: {i}\n" for i, word in enumerate(words)), encoding="utf-8")
