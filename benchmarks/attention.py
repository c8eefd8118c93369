"""How fast are our attention layers, forward and backward, compared with their plain definitions and with other
libraries?

Ceiling: the machine's rate for a large matrix product, measured in the same rounds. A layer of width D over N tokens in
sequences of length T takes 8·N·D² operations for its projections and 4·N·T·D for its two products (half of that under a
causal mask), and twice as many again for the backward pass.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from measure import interleave, keep, large_product
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from regard.attention import Additive
from regard.build import build_heads
from regard.config import HeadsSettings
from regard.mask import Mask, causal, padding
from regard.model import MultiHeadAttention
from regard.model.multihead import merge_heads, split_heads
from regard.study.repeats import signature
from regard.study.timing import Timing, peak_bytes

D_MODEL, N_HEADS, N_TOKENS = 512, 8, 4096
LENGTHS = (128, 512, 2048)
ADDITIVE = {"cpu": (8, 512, 256), "cuda": (8, 1024, 256)}  # batch, length, hidden
SMALL, FEW, SHORT = (2, 128, 64), 512, (64, 128, 256)  # the same for a quick try: additive, tokens, lengths
Step = Callable[[], None]


def additive_step(size: tuple[int, int, int], version: str, device: torch.device) -> Step:
    """Return one forward and backward pass of additive attention, materialised or in blocks."""
    torch.manual_seed(0)
    B, n, hidden = size
    attention = Additive(n_heads=1, d_query=hidden, d_key=hidden, hidden=hidden).to(device)
    q, k, v = (torch.randn(B, 1, n, hidden, device=device, requires_grad=True) for _ in range(3))
    if version == "blocks":
        return lambda: attention(q, k, v).sum().backward()
    return lambda: (attention.weights(q, k) @ v).sum().backward()


def bench_additive(
    console: Console, size: tuple[int, int, int], device: str, seconds: float
) -> dict[str, dict[str, float | None]]:
    """Sets additive attention in blocks beside the materialised one."""
    make = partial(additive_step, size)
    steps = {version: make(version, torch.device(device)) for version in ("materialised", "blocks")}
    times = interleave(steps, device, seconds)
    found = peak_bytes(make, list(steps), torch.device(device)) or [None] * len(steps)
    mib = {version: None if n_bytes is None else n_bytes / 2**20 for version, n_bytes in zip(steps, found, strict=True)}
    B, n, hidden = size
    table = Table(title=f"Additive attention, batch {B}, {n} × {n}, hidden {hidden}, float32, forward + backward")
    for column in ("version", "ms (middle half)", "× faster", "extra MiB", "share of memory"):
        table.add_column(column, justify="right")
    plain, most = times["materialised"].median, mib["materialised"]
    for version, timing in times.items():
        extra = mib[version]
        memory = ("–", "–") if not (extra and most) else (f"{extra:,.0f}", f"1/{most / extra:.0f}")
        table.add_row(version, _ms(timing), f"{plain / timing.median:.2f}", *memory)
    console.print(table)
    return {version: {**_kept(t), "extra_mib": mib[version]} for version, t in times.items()}


def ours(device: str, dtype: torch.dtype) -> MultiHeadAttention:
    """Makes our layer."""
    return build_heads(HeadsSettings(d_model=D_MODEL, n_heads=N_HEADS)).to(device, dtype)


def materialised(layer: MultiHeadAttention, x: Tensor, mask: Mask) -> Tensor:
    """Runs our layer by its definition."""
    q, k, v = (split_heads(w(x), N_HEADS) for w in (layer.w_q, layer.w_k, layer.w_v))
    return layer.w_o(merge_heads(layer.attention.weights(q, k, mask) @ v))


def layer_steps(kind: str, B: int, length: int, device: str, dtype: torch.dtype) -> dict[str, Step]:
    """Makes one forward and backward pass of a self-attention layer in each version, on the same tokens."""
    torch.manual_seed(0)
    x = torch.randn(B, length, D_MODEL, device=device, dtype=dtype, requires_grad=True)
    places = torch.arange(length, device=device)[None]
    lengths = torch.randint(length // 2, length + 1, (B,), device=device)
    padded = torch.arange(length, device=device) >= lengths[:, None]
    mask = causal() if kind == "causal" else padding(lengths, length)
    mine, torchs = ours(device, dtype), nn.MultiheadAttention(D_MODEL, N_HEADS, batch_first=True).to(device, dtype)
    future = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)
    hidden = {"attn_mask": future, "is_causal": True} if kind == "causal" else {"key_padding_mask": padded}
    steps = {
        "regard": lambda: mine(x, x, x, places, places, mask),
        "regard, materialised": lambda: materialised(mine, x, mask),
        "nn.MultiheadAttention": lambda: torchs(x, x, x, need_weights=False, **hidden)[0],
        "nn.MultiheadAttention, weights": lambda: torchs(x, x, x, need_weights=True, **hidden)[0],
    }
    peer = x_transformers(kind, device, dtype)
    if peer is not None:
        steps["x-transformers"] = lambda: peer(x, mask=None if kind == "causal" else ~padded)
    return {name: partial(_backward, call) for name, call in steps.items()}


def x_transformers(kind: str, device: str, dtype: torch.dtype) -> Callable[..., Tensor] | None:
    """Makes the peer's layer with its fused kernel, or None where it is not installed."""
    try:
        from x_transformers.x_transformers import Attention
    except ImportError:
        return None
    width = D_MODEL // N_HEADS
    layer = Attention(dim=D_MODEL, dim_head=width, heads=N_HEADS, causal=kind == "causal", flash=True).to(device, dtype)
    return layer


def bench_layers(
    console: Console, n_tokens: int, lengths: tuple[int, ...], device: str, dtype: torch.dtype, seconds: float
) -> list[dict[str, float | str]]:
    """Sets our layer beside the peers', causal and padded, at several lengths and one number of tokens."""
    product, product_flops = large_product(device, dtype)
    rows = []
    for kind, length in ((kind, length) for kind in ("causal", "padded") for length in lengths):
        B = n_tokens // length
        times = interleave({"limit": product, **layer_steps(kind, B, length, device, dtype)}, device, seconds)
        flops = 3 * n_tokens * (8 * D_MODEL**2 + (2 if kind == "causal" else 4) * length * D_MODEL)
        rate = product_flops / times.pop("limit").median
        console.print(_layer_table(f"{kind}, {B} × {length} tokens", times, flops, rate))
        about = {"kind": kind, "length": length, "batch": B}
        rows += [
            {**about, "version": name, **_kept(t), "of_limit": flops / rate / t.median} for name, t in times.items()
        ]
    return rows


def _layer_table(what: str, times: dict[str, Timing], flops: float, rate: float) -> Table:
    limit = flops / rate
    table = Table(
        title=f"Self-attention, {what}, width {D_MODEL}, {N_HEADS} heads, "
        f"forward + backward; limit {limit * 1e3:.2f} ms at {rate / 1e9:,.0f} GFLOP/s"
    )
    for column in ("version", "ms (middle half)", "share of the limit", "regard is × faster"):
        table.add_column(column, justify="right")
    for name, timing in times.items():
        ratio = timing.median / times["regard"].median
        table.add_row(name, _ms(timing), f"{limit / timing.median:.0%}", f"{ratio:.2f}")
    return table


def _backward(call: Callable[[], Tensor]) -> None:
    call().sum().backward()


def _kept(timing: Timing) -> dict[str, float]:
    return {"ms": timing.median * 1e3, "low_ms": timing.low * 1e3, "high_ms": timing.high * 1e3}


def _ms(timing: Timing) -> str:
    return f"{timing.median * 1e3:.2f} ({timing.low * 1e3:.2f} … {timing.high * 1e3:.2f})"


def main() -> None:
    """Runs both parts and keeps the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each table")
    parser.add_argument("--quick", action="store_true", help="small and short, for no figures")
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    size = SMALL if given.quick else ADDITIVE[given.device]
    n_tokens, lengths = (FEW, SHORT) if given.quick else (N_TOKENS, LENGTHS)
    seconds = 0.3 if given.quick else given.seconds
    console = Console(width=120)
    dtype = torch.bfloat16 if given.device == "cuda" else torch.float32
    additive = bench_additive(console, size, given.device, seconds)
    layers = bench_layers(console, n_tokens, lengths, given.device, dtype, seconds)
    sign = signature(given.device, dtype=str(dtype), seed=0, d_model=D_MODEL, n_heads=N_HEADS)
    keep(f"attention-{given.device}", {"signature": sign, "additive": additive, "layers": layers}, given.results)


if __name__ == "__main__":
    main()
