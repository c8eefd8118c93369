"""What does it cost to trace a run, and to save the trace?

Ceilings: a file must be read and written once, so it takes at least its bytes at the disk's rate; all heads of an
attention are H·Q·K numbers that must be written, however they are computed. An untraced run pays for none of this:
traced and untraced runs are timed in turn on the same sentences and must find the same translations.

The model is the paper's base with random weights, 6 layers × 8 heads × 3 kinds, unless a shape is named.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from measure import interleave, keep
from rich.console import Console
from rich.table import Table

import regard
from regard.build import build_model
from regard.config import ModelSettings, parse_settings, preset
from regard.padding import EOS
from regard.pipeline import load_translator
from regard.study.repeats import signature
from regard.study.timing import Timing, peak_bytes
from regard.trace import Trace
from regard.trace.external import trace_from_attention
from regard.trace.replay import Replay, replay

VOCABULARY = 8000
SENTENCE = "介绍一下西安，他是我的朋友。"


def make(shape: str, family: str = "transformer") -> Any:
    """Makes a model of a preset's size with random weights."""
    torch.manual_seed(0)
    sizes = parse_settings(ModelSettings, {"tie": "target", **preset(shape, family).get("model", {})})
    return build_model(sizes, (VOCABULARY, VOCABULARY)).eval()


def path(n: int) -> tuple[list[int], list[int]]:
    """Draws a source and what was said, n tokens each."""
    ids = torch.randint(4, VOCABULARY, (2, n - 1), generator=torch.Generator().manual_seed(0)).tolist()
    return ids[0], [*ids[1], EOS]


def as_trace(seen: Replay, n: int) -> Trace:
    """Makes a trace with names for its tokens."""
    words = [f"▁{place}" for place in range(n)]
    return trace_from_attention(seen.attention, words, words)


def look_at_all(shape: str, n: int, family: str, device: torch.device) -> Callable[[], Any]:
    """Return a call that reads n tokens and asks for everything, one look after another."""
    model, (source, said) = make(shape, family).to(device), path(n)

    def call() -> float:
        seen = as_trace(replay(model, source, said), n)
        largest = max(float(look.weights().max()) for look in seen.attention)
        return largest + seen.check().weights

    return call


def time_files(shape: str, n: int, folder: Path, seconds: float) -> tuple[dict[str, Timing], dict[str, Any]]:
    """Times replay, one head, all heads, saving and opening for n tokens."""
    model, (source, said) = make(shape), path(n)
    trace, target = as_trace(replay(model, source, said), n), folder / "trace.safetensors"
    trace.save(target)
    calls = {
        "replay": partial(replay, model, source, said),
        "save": partial(trace.save, target),
        "open": partial(regard.load_trace, target),
        "open, and one head": lambda: regard.load_trace(target).cross[0].weights(0),
        "one head": partial(trace.cross[0].weights, 0),
        "all heads of all layers": lambda: [look.weights() for look in trace.attention],
        "terms of one head": partial(trace.encoder[0].terms, 0),
        "all checks": trace.check,
    }
    heads = sum(look.n_heads for look in trace.attention)
    about = {"tokens": n, "heads": heads, "mib": target.stat().st_size / 2**20}
    return interleave(calls, "cpu", seconds), about


def _rounding(trace: Trace) -> float:
    """Gives the largest error of a weight if queries and keys were kept in float16."""
    worst = 0.0
    for look in trace.attention:
        small: Any = replace(look, q=look.q.half().float(), k=look.k.half().float())  # pyright: ignore
        worst = max(worst, float((small.weights() - look.weights()).abs().max()))
    return worst


def time_runs(model: str, seconds: float) -> tuple[dict[str, Timing], dict[str, Any]]:
    """Times a bundled model with and without a trace, on one sentence."""
    translator = load_translator(model)
    untraced, traced = translator.translate(SENTENCE), regard.trace_texts(translator, [SENTENCE])
    assert [one.translation for one in traced] == untraced, "what is traced is what runs"
    about = {"model": model, "sentence": SENTENCE, "error_in_float16": _rounding(traced[0].trace)}
    calls: dict[str, Callable[[], Any]] = {
        "untraced": partial(translator.translate, SENTENCE),
        "traced": partial(regard.trace_texts, translator, [SENTENCE]),
    }
    return interleave(calls, "cpu", seconds), about


def table(title: str, times: dict[str, Timing]) -> Table:
    """Lists medians with the middle half of the repeats."""
    made = Table(title=title)
    for column in ("call", "ms", "middle half"):
        made.add_column(column, justify="left" if column == "call" else "right")
    for name, timing in times.items():
        made.add_row(name, f"{timing.median * 1e3:,.2f}", f"{timing.low * 1e3:,.2f} … {timing.high * 1e3:,.2f}")
    return made


def main() -> None:
    """Runs every table and keeps the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["tiny", "small", "base"], default="base")
    parser.add_argument("--tokens", type=int, default=200, help="of source and target, for times and sizes")
    parser.add_argument("--long", type=int, default=500, help="tokens for memory")
    parser.add_argument("--model", default="zh-en", help="the model that runs with and without a trace")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each table, at least")
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    console = Console(width=120)
    with TemporaryDirectory() as folder:
        files, about = time_files(given.shape, given.tokens, Path(folder), given.seconds)
    size = f"{about['heads']} heads × {about['tokens']} tokens, {about['mib']:.1f} MiB"
    console.print(table(f"{given.shape}: {size}", files))
    runs, of = time_runs(given.model, given.seconds)
    console.print(table(f"{given.model}: {SENTENCE}", runs))
    console.print(f"kept in float16, its weights would be off by up to {of['error_in_float16']:.1e}")
    families = ("transformer", "recurrent")
    found = peak_bytes(partial(look_at_all, given.shape, given.long), families, torch.device("cpu"))
    memory = dict(zip(families, found or (), strict=False))
    for family, n_bytes in memory.items():
        console.print(f"{given.long} tokens, {family}: peak memory of all weights {n_bytes / 2**20:,.0f} MiB")
    rows = {name: vars(timing) for name, timing in (files | runs).items()}
    record = {"shape": given.shape, **about, **of, "peak_bytes": memory, "long": given.long, "seconds": rows}
    keep("trace-cpu", {"signature": signature("cpu", seed=0), **record}, given.results)


if __name__ == "__main__":
    main()
