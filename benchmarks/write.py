"""How fast does a decoder write, and what does its cache save?

Ceiling: each token reads every weight once, so it takes at least their bytes at the rate at which this machine reads as
many. Without a cache a token reads the whole text before it again: n times the products of one token, where n is what
was written.

Shapes are those of recipes/shakespeare-cpu.toml and recipes/shakespeare.toml, with random weights.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import interleave, keep, large_read
from rich.console import Console
from rich.table import Table

from regard.batch import make_source
from regard.build import build_model
from regard.config import DecodeSettings, ModelSettings, PartSettings
from regard.model import DecoderOnly
from regard.padding import BOS, EOS
from regard.pipeline.generator import generate_tokens
from regard.study.repeats import signature
from regard.study.timing import Timing

SHAPES = {"small": (4, 128, 4, 64), "large": (6, 384, 6, 256)}  # layers, width, heads, context
VOCABULARY = 69


def make(shape: str, device: str) -> DecoderOnly:
    """Makes a decoder of a recipe's size with random weights."""
    torch.manual_seed(0)
    layers, width, heads, _ = SHAPES[shape]
    sizes = {"n_encoder_layers": 0, "n_decoder_layers": layers, "d_model": width, "n_heads": heads, "d_ff": 4 * width}
    parts = {"norm_place": "before", "activation": "gelu", "position": PartSettings("rotary")}
    model = build_model(ModelSettings(family="decoder", **sizes, **parts), (VOCABULARY, VOCABULARY))
    assert isinstance(model, DecoderOnly), "the family says so"
    return model.to(device).eval()


def with_cache(model: DecoderOnly, n: int) -> list[int]:
    """Writes n tokens as `regard generate` does; EOS is never said."""
    settings = DecodeSettings(method="greedy", max_extra=n)
    return [token for token, _ in generate_tokens(model, [], settings, None)]


@torch.inference_mode()
def without_cache(model: DecoderOnly, n: int) -> list[int]:
    """Writes n tokens, and reads all that was written before each."""
    ids = torch.tensor([[BOS]], device=next(model.parameters()).device)
    for _ in range(n):
        logits, _ = model.advance(ids, model.start(make_source([[]]), 1))
        logits[:, :4] = -torch.inf
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids[0, 1:].tolist()


def measure(shape: str, device: str, seconds: float) -> tuple[dict[str, Timing], dict[str, Any]]:
    """Times a window's worth of text with and without the cache, which must write the same."""
    model, n = make(shape, device), SHAPES[shape][-1] - 1
    with torch.no_grad():
        model.output.table.weight[EOS] = 0.0  # so that no text ends before it is long
    assert len(with_cache(model, n)) == n, "all of it is written"
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    calls: dict[str, Callable[[], Any]] = {
        "with the cache": partial(with_cache, model, n),
        "without": partial(without_cache, model, n),
    }
    if device == "cpu":
        calls["reading the weights once"] = large_read(weights)
    return interleave(calls, device, seconds, least=3), {"tokens": n, "bytes": weights}


def table(shape: str, times: dict[str, Timing], n: int) -> Table:
    """Lists tokens a second."""
    found = Table(title=f"{shape}: {n} tokens")
    for column in ("", "ms", "tokens/s"):
        found.add_column(column, justify="left" if not column else "right")
    for name, timing in times.items():
        speed = "" if name.startswith("reading") else f"{n / timing.median:,.0f}"
        found.add_row(name, f"{1000 * timing.median:.2f}", speed)
    return found


def main() -> None:
    """Measures every shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=15.0, help="for each shape")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    record: dict[str, Any] = {"signature": signature(args.device, seed=0, dtype="float32")}
    for shape in args.shapes:
        times, about = measure(shape, args.device, args.seconds)
        Console().print(table(shape, times, about["tokens"]))
        record[shape] = {**about, "seconds": {name: vars(timing) for name, timing in times.items()}}
    keep(f"write-{args.device}", record, args.results)


if __name__ == "__main__":
    main()
