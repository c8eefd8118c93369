"""Model folders that are broken or meant to harm, each with the name of what is wrong with it."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard.build import build_model
from regard.checkpoint.weights import Checkpoint, Form, save_model
from regard.config import Settings, parse_settings
from regard.data.tokenizer import Tokenizer, train_characters

SIZES = {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 12, "n_heads": 2, "d_ff": 20}
LEARNED = {"position": {"name": "learned", "max_len": 64}}
PARTS: dict[str, dict[str, Any]] = {
    "native": SIZES,
    "learned": SIZES | LEARNED,
    "alibi": SIZES | {"position": {"name": "alibi"}},
    "recurrent": SIZES
    | {"family": "recurrent", "n_heads": 1, "attention": {"name": "additive"}}
    | {"position": {"name": "none"}},
    "decoder": SIZES | {"family": "decoder", "n_encoder_layers": 0},
    "int8": SIZES,
}
Damage = Callable[[Path], object]


def make_folder(folder: Path, kind: str) -> Path:
    """Write a whole model of one kind: characters for words, weights as they are drawn."""
    torch.manual_seed(3)
    made = parse_settings(Settings, {"model": PARTS[kind]})
    tokenizer = Tokenizer((train_characters(["abcdefghij "], 15, byte_fallback=False),))
    model = build_model(made.model, (15, 15))
    save_model(folder, Checkpoint(model, tokenizer, made), {"step": 1}, Form("int8" if kind == "int8" else "float32"))
    (folder / "checksums.json").unlink()  # as whoever means harm would do
    return folder


def setting(path: str, value: Any) -> Damage:
    """Change one setting of the config, such as model.d_ff."""

    def damage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        *tables, name = path.split(".")
        table = config["settings"]
        for each in tables:
            table = table[each]
        table[name] = value
        (folder / "config.json").write_text(json.dumps(config))

    return damage


def weights(name: str, change: Callable[[Tensor], Tensor]) -> Damage:
    """Change one tensor."""

    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        tensors[name] = change(tensors[name].clone())
        save_file(tensors, folder / "model.safetensors")

    return damage


def number(value: float) -> Callable[[Tensor], Tensor]:
    """Put a number into the middle of a tensor."""

    def change(tensor: Tensor) -> Tensor:
        tensor.view(-1)[tensor.numel() // 2] = value
        return tensor

    return change


def file(name: str, content: bytes) -> Damage:
    """Replace a file."""
    return lambda folder: (folder / name).write_bytes(content)


def pipe(name: str) -> Damage:
    """Put a pipe in the place of a file: whoever opens it waits for a writer for ever."""

    def damage(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return damage


def device(name: str) -> Damage:
    """Put a link to a device that never ends in the place of a file."""

    def damage(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to("/dev/zero")

    return damage


DEEP = b'{"settings": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
INNER = "encoder.layers.0.feed_forward.inner.weight"
BIG = 10**9

# What is wrong: the kind of model, the damage, and what the message must say, the offending value in it.
CASES: dict[str, tuple[str, Damage, str]] = {
    "NaN weight": ("native", weights(INNER, number(float("nan"))), rf"{INNER}.*nan"),
    "infinite weight": ("native", weights(INNER, number(float("inf"))), rf"{INNER}.*inf"),
    "infinite bias": (
        "native",
        weights("encoder.layers.0.feed_forward.inner.bias", number(-float("inf"))),
        r"inner\.bias.*-inf",
    ),
    "NaN weight of PyTorch": ("alibi", weights(INNER, number(float("nan"))), rf"{INNER}.*nan"),
    "NaN weight of a GRU": ("recurrent", weights("attention.w_q", number(float("nan"))), r"attention\.w_q.*nan"),
    "NaN weight of a decoder": ("decoder", weights("tgt.table.weight", number(float("nan"))), r"tgt\.table.*nan"),
    "bfloat16 NaN": ("native", weights(INNER, lambda x: number(float("nan"))(x.bfloat16())), rf"{INNER}.*nan"),
    "float16 infinity": ("native", weights(INNER, lambda x: number(float("inf"))(x.half())), rf"{INNER}.*inf"),
    "float64 beyond float32": ("native", weights(INNER, lambda x: number(1e300)(x.double())), rf"{INNER}.*1e\+300"),
    "NaN scale": ("int8", weights(INNER + ".scale", number(float("nan"))), rf"{INNER}\.scale.*nan"),
    "0-d scale": ("int8", weights(INNER + ".scale", lambda x: x[0].clone()), rf"{INNER}\.scale.*\(\)"),
    "scales of other rows": ("int8", weights(INNER + ".scale", lambda x: x[:-1].clone()), rf"{INNER}\.scale.*\(19,\)"),
    "2-d scales": ("int8", weights(INNER + ".scale", lambda x: x[:, None].clone()), rf"{INNER}\.scale.*\(20, 1\)"),
    "0-d weights of scales": ("int8", weights(INNER, lambda x: x[0, 0].clone()), rf"{INNER}\.scale.*\(20,\)"),
    "complex weights": ("native", weights(INNER, lambda x: x.to(torch.complex64)), r"C64"),
    **{
        f"{kind}, {name} = {value}": (kind, setting(f"model.{name}", value), rf"{name}.*{value}")
        for kind in ("native", "alibi", "recurrent", "decoder")
        for name, value in (
            *(("n_encoder_layers", BIG),) * (kind != "decoder"),
            *(("d_ff", BIG),) * (kind != "recurrent"),
            ("n_decoder_layers", BIG),
            ("d_model", 10**6),
            ("d_embedding", 10**8),
            ("n_heads", BIG),
            ("d_model", -12),
            ("n_decoder_layers", -1),
        )
    },
    "recurrent, hidden": (
        "recurrent",
        setting("model.attention", {"name": "additive", "hidden": 10**8}),
        r"hidden.*100000000",
    ),
    "learned, max_len": ("learned", setting("model.position.max_len", 10**8), r"max_len.*100000000"),
    "learned, max_len as text": ("learned", setting("model.position.max_len", "64"), r"max_len.*'64'"),
    "learned, max_len 0": ("learned", setting("model.position.max_len", 0), r"max_len.*0"),
    "t5, buckets": (
        "alibi",
        setting("model.position", {"name": "t5", "n_buckets": 10**8, "max_distance": 10**9}),
        r"n_buckets.*100000000",
    ),
    "shaw, distance": (
        "alibi",
        setting("model.position", {"name": "shaw", "max_distance": 10**8}),
        r"max_distance.*100000000",
    ),
    **{
        f"{kind}, base = {value}": (kind, setting("model.position", {"name": name, "base": value}), rf"base.*{value}")
        for kind, name in (("native", "sinusoidal"), ("native", "rotary"), ("alibi", "difference"))
        for value in (float("nan"), float("inf"), 0.5, "x")
    },
    "base of a scheme without one": (
        "learned",
        setting("model.position", {"name": "learned", "max_len": 64, "base": 5.0}),
        r"option.*'base'",
    ),
    **{
        f"decode.{name} = {value}": ("native", setting(f"decode.{name}", value), rf"{name}.*{re.escape(str(value))}")
        for name, value in (
            ("beam", BIG),
            ("n_best", BIG),
            ("max_extra", BIG),
            ("batch_tokens", 10**12),
            ("length_penalty", 1e308),
            ("length_penalty", float("nan")),
            ("max_ratio", float("inf")),
            ("max_ratio", float("nan")),
            ("temperature", 1e-39),
            ("temperature", float("nan")),
        )
    },
    "text.max_len = 0": ("native", setting("text.max_len", 0), r"max_len.*0"),
    "JSON nested deep": ("native", file("config.json", DEEP), r"config\.json: .*nested"),
    "checksums nested deep": ("native", file("checksums.json", DEEP), r"checksums\.json: .*recursion"),
    "scores nested deep": ("native", file("scores.json", DEEP), r"scores\.json: .*nested"),
    "index nested deep": (
        "native",
        lambda folder: ((folder / "model.safetensors").unlink(), file("model.safetensors.index.json", DEEP)(folder)),
        r"index\.json: .*nested",
    ),
    "settings of a list": ("native", file("config.json", b'{"settings": {"model": []}}'), r"model.*\[\]"),
    **{f"{name} is a pipe": ("native", pipe(name), rf"{name}.*pipe") for name in ("config.json", "model.safetensors")},
    "tokenizer is a pipe": ("native", pipe("tokenizer.model"), r"tokenizer\.model"),
    "scores are a pipe": ("native", pipe("scores.json"), r"scores\.json.*pipe"),
    **{
        f"{name} is a device": ("native", device(name), rf"{name}.*device")
        for name in ("config.json", "model.safetensors", "scores.json")
    },
    "tokenizer is a device": ("native", device("tokenizer.model"), r"tokenizer\.model"),
    **{
        f"tokenizer {what}": ("native", file("tokenizer.model", content), rf"tokenizer\.model: .*{message}")
        for what, content, message in (
            ("empty", b"", "empty"),
            ("of other bytes", b"\n\x05hello", "7 other bytes"),
            ("nested deep", b'{"characters": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested"),
            ("with a number", b'{"characters": [1], "bytes": false}', "single characters"),
            ("with a character twice", b'{"characters": ["a", "a"], "bytes": false}', "'a'"),
            ("without bytes", b'{"characters": ["a"]}', "bytes"),
        )
    },
    "tokenizer of another size": (
        "native",
        file("tokenizer.model", b'{"characters": ["a"], "bytes": false}'),
        r"src\.table\.weight is \(15, 12\) instead of \(5, 12\)",
    ),
    "scores of text": ("native", file("scores.json", b'{"test": {"bleu": "<b>9</b>"}}'), r"scores\.json: .*<b>9</b>"),
    "scores without a table": ("native", file("scores.json", b'{"test": 5}'), r"scores\.json: .*test.*5"),
}
