"""How close do our two attention kernels come to what the GPU can do, compared with the plain formula and with other
libraries?

Additive attention computes a tanh for each query, key and hidden unit: its ceiling is the rate of the GPU's tanh, which
is measured here. A forward pass needs one for each, a backward pass two. Attention with a bias by offset takes 4·Q·K·E
operations forward and 10·Q·K·E backward for each head: its ceiling is the rate of a large matrix product. It must at
least move queries, keys, values, output and their gradients once each. Keys so far away that ALiBi leaves them less
than 2⁻³² of the largest weight are skipped; how many those are depends on the data, here drawn from a normal
distribution.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from kernel_rates import product_rate, tanh_rates
from measure import copy_rate, interleave
from rich.console import Console
from rich.table import Table
from torch import Tensor

from regard.attention import Additive, ScaledDot
from regard.attention.blockwise import AdditiveBlocks
from regard.mask import Mask
from regard.position import T5, ALiBi, OffsetBias, Position, Shaw
from regard.study.repeats import signature
from regard.study.timing import peak_bytes

DEVICE = "cuda"
ADDITIVE = (8, 1024, 256)  # batch, length, hidden
RELATIVE = (8, 8, 2048, 64)  # batch, heads, length, width of a head
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
Step = Callable[[], Any]


def additive_inputs(B: int, n: int, hidden: int, dtype: torch.dtype) -> tuple[Additive, list[Tensor]]:
    """Makes an additive attention of one head, and what it looks at."""
    torch.manual_seed(0)
    attention = Additive(n_heads=1, d_query=hidden, d_key=hidden, hidden=hidden).to(DEVICE, dtype)
    return attention, [torch.randn(B, 1, n, hidden, device=DEVICE, dtype=dtype, requires_grad=True) for _ in "qkv"]


def additive_versions(attention: Additive, plain: bool = True) -> dict[str, Callable[..., Tensor]]:
    """Gives the ways to the same output."""

    def definition(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention.weights(q, k) @ v

    def in_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        f_q = torch.einsum("bhqe,hef->bhqf", q, attention.w_q)
        return AdditiveBlocks.apply(f_q, attention.key_features(k), attention.w_v, v, None, Mask(), 0.0)  # pyright: ignore

    def kernel(exact: bool, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        attention.exact = exact
        return attention(q, k, v)

    ours = {"kernel": partial(kernel, False), "kernel, exact tanh": partial(kernel, True), "blocks": in_blocks}
    return ours | ({"definition": definition, "definition, compiled": torch.compile(definition)} if plain else {})


def relative_inputs(B: int, H: int, n: int, E: int) -> list[Tensor]:
    """Makes queries, keys and values in bfloat16."""
    torch.manual_seed(0)
    return [torch.randn(B, H, n, E, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in "qkv"]


def offsets_of(position: Position, places: Tensor) -> Callable[[Tensor], OffsetBias]:
    """Gives what makes the scheme's bias by offset, without the look at the places that makes the host wait."""
    if isinstance(position, T5):
        reach = torch.arange(-position.max_distance, position.max_distance + 1, device=DEVICE)
        entries = position.buckets(reach)
        return lambda q: OffsetBias(places, places, position.table[entries].T[None, :, None])
    if isinstance(position, Shaw):
        return lambda q: OffsetBias(places, places, q @ position.keys.to(q.dtype).T * position.scale)
    return lambda q: OffsetBias(places, places, slopes=position.get_buffer("slopes"))


def relative_versions(position: Position, n: int) -> dict[str, Callable[..., Tensor]]:
    """Gives the ways to attention with this scheme's bias, and plain attention without any."""
    from regard.kernels.relative_forward import relative_attention

    places, attention = torch.arange(n, device=DEVICE)[None], ScaledDot()
    offsets = offsets_of(position, places)

    def dense(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, offsets(q).materialise(q.dtype))

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return relative_attention(q, k, v, Mask(), offsets(q), attention.scale(q.shape[-1]), 0.0)

    return {"no bias": F.scaled_dot_product_attention, "kernel": kernel, "dense bias": dense}


def flex_version(position: Position, n: int) -> dict[str, Callable[..., Tensor]]:
    """Gives the same through FlexAttention, compiled; for a bias that does not depend on the query."""
    from torch.nn.attention.flex_attention import flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    offsets = offsets_of(position, torch.arange(n, device=DEVICE)[None])

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        given = offsets(q)
        if given.table is None:
            assert given.slopes is not None, "a bias has one of both"
            slopes = given.slopes.float()
            return compiled(q, k, v, score_mod=lambda s, b, h, i, j: s - slopes[h] * (j - i).abs())
        at = torch.arange(1 - n, n, device=DEVICE).clamp(-given.max_offset, given.max_offset) + given.max_offset
        entries = given.table[0, :, 0, at]
        return compiled(q, k, v, score_mod=lambda s, b, h, i, j: s + entries[h, j - i + n - 1])

    return {"FlexAttention": run}


def timed(
    versions: dict[str, Callable[..., Tensor]], given: list[Tensor], learned: list[Tensor], seconds: float
) -> dict[str, dict[str, Any]]:
    """Times forward passes alone and with backward ones, all versions in turn; one that fails says why.

    Passes are replayed from a captured graph, so that only the GPU's work is timed; `eager` is the wall clock of both
    passes called from Python one by one.
    """
    ahead = torch.randn(*given[0].shape[:3], given[2].shape[3], device=DEVICE, dtype=given[0].dtype)
    steps: dict[str, dict[str, Step]] = {"forward": {}, "both": {}, "eager": {}}
    found: dict[str, dict[str, Any]] = {}
    for name, run in versions.items():
        both, alone = partial(_both, run, given, learned, ahead), torch.no_grad()(partial(run, *given))
        try:
            both()
            alone()
            found[name] = {"extra_mib": _extra_mib(both)}
            steps["eager"][name] = steps["both"][name] = both
            steps["forward"][name] = alone
            steps["both"][name], steps["forward"][name] = captured(both), captured(alone)
        except Exception as error:  # a peer that does not run is no reason to lose the others
            # What runs but cannot be captured is timed from Python, which its row then says.
            why = "failed" if name not in steps["forward"] else "not captured"
            found[name] = found.get(name, {}) | {why: f"{type(error).__name__}: {error}"[:300]}
    for what, calls in steps.items():
        for name, timing in interleave(calls, DEVICE, seconds, least=5, most=seconds / 3).items():
            found[name][what] = {"ms": timing.median * 1e3, "low": timing.low * 1e3, "high": timing.high * 1e3}
    return found


def _extra_mib(step: Step) -> float:
    found = peak_bytes(lambda step, _: step, [step], torch.device(DEVICE))
    assert found is not None, "a GPU tells its peak"
    return found[0] / 2**20


def _both(run: Callable[..., Tensor], given: list[Tensor], learned: list[Tensor], ahead: Tensor) -> Any:
    return torch.autograd.grad(run(*given), [*given, *learned], ahead, allow_unused=True)


def captured(call: Step) -> Step:
    """Gives the replay of a call's graph, captured once it has run on a stream of its own."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def show(console: Console, title: str, found: dict[str, dict[str, Any]], limits: dict[str, float]) -> None:
    """Prints one table: times beside the physical limits, and the memory beyond inputs."""
    table = Table(title=f"{title}; limit {limits['forward']:.3f} ms forward, {limits['both']:.3f} ms both")
    for column in ("version", "forward ms", "both ms (middle half)", "of the limit", "from Python ms", "extra MiB"):
        table.add_column(column, justify="right")
    for name, row in found.items():
        if "failed" in row:
            table.add_row(name, row["failed"][:60], "", "", "", "")
            continue
        both = row["both"]
        spread = f"{both['ms']:.3f} ({both['low']:.3f} … {both['high']:.3f})"
        share = f"{limits['both'] / both['ms']:.0%}"
        numbers = (f"{row['eager']['ms']:.3f}", f"{row['extra_mib']:,.0f}")
        name += " (not captured)" if "not captured" in row else ""
        table.add_row(name, f"{row['forward']['ms']:.3f}", spread, share, *numbers)
    console.print(table)


def accuracy(dtype: torch.dtype = torch.bfloat16) -> dict[str, dict[str, float]]:
    """Compares both forms of tanh with the definition in float64 on inputs rounded to bfloat16: relative distances."""
    attention, given = additive_inputs(2, 256, 256, dtype)
    exact = Additive(n_heads=1, d_query=256, d_key=256, hidden=256).to(DEVICE, torch.float64)
    exact.load_state_dict({name: x.double() for name, x in attention.state_dict().items()})
    wanted = [x.detach().double().requires_grad_() for x in given]
    ahead = torch.randn(2, 1, 256, 256, device=DEVICE, dtype=dtype)
    want = exact.weights(wanted[0], wanted[1]) @ wanted[2]
    answers = [want, *torch.autograd.grad(want, [*wanted, *exact.parameters()], ahead.double())]
    names = ["out", "d_q", "d_k", "d_v", "d_w_q", "d_w_k", "d_w_v"]
    found = {}
    versions = additive_versions(attention)
    for version in ("kernel", "kernel, exact tanh", "definition"):
        out = versions[version](*given)
        got = [out, *torch.autograd.grad(out, [*given, *attention.parameters()], ahead)]
        found[version] = {
            name: float(((x.double() - y).norm() / y.norm()).detach())
            for name, x, y in zip(names, got, answers, strict=True)
        }
    return found


def growth(seconds: float, until: float) -> dict[str, list[dict[str, float]]]:
    """Times both kernels over the lengths, at a number of tokens that stays; stops at `until` on the clock."""
    rows: dict[str, list[dict[str, float]]] = {"additive": [], "t5": []}
    for n in LENGTHS:
        if time.perf_counter() > until:
            break
        attention, given = additive_inputs(1, n, 64, torch.bfloat16)
        scheme = T5(n_heads=2).to(DEVICE)
        calls: dict[str, tuple[Callable[..., Tensor], list[Tensor], torch.nn.Module]] = {}
        calls["additive"] = (additive_versions(attention, plain=False)["kernel"], given, attention)
        calls["t5"] = (relative_versions(scheme, n)["kernel"], relative_inputs(1, 2, n, 64), scheme)
        for name, (run, inputs, part) in calls.items():
            row = timed({"kernel": run}, inputs, list(part.parameters()), seconds)["kernel"]
            rows[name].append({"length": n, "ms": row["both"]["ms"], "extra_mib": row["extra_mib"]})
    return rows


def exponents(rows: list[dict[str, float]]) -> dict[str, float]:
    """Gives the powers of the length with which time and memory grow over the last two doublings."""
    if len(rows) < 3:
        return {}
    last, before = rows[-1], rows[-3]
    powers = torch.tensor([[row["ms"], row["extra_mib"]] for row in (last, before)], dtype=torch.float64).log2()
    time_power, memory_power = ((powers[0] - powers[1]) / 2).tolist()
    return {"time": time_power, "memory": memory_power}


def limits_of_additive(rate: float) -> dict[str, float]:
    """Gives the milliseconds that the tanhs alone take: one for each triple forward, and two backward."""
    B, n, hidden = ADDITIVE
    once = B * n * n * hidden / rate * 1e3
    return {"forward": once, "both": 3 * once}


def limits_of_relative(flops: float, bandwidth: float) -> dict[str, float]:
    """Gives the milliseconds that products take, or that memory takes where that is more."""
    B, H, n, E = RELATIVE
    pairs, tensor = B * H * n * n * E, B * H * n * E * 2
    return {
        "forward": 1e3 * max(4 * pairs / flops, 4 * tensor / bandwidth),
        "both": 1e3 * max(14 * pairs / flops, 11 * tensor / bandwidth),
    }


def main() -> None:
    """Runs all parts, keeping what there is after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each table's forward passes, and as many again")
    parser.add_argument("--minutes", type=float, default=3.5, help="after which no further part begins")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "kernels-cuda.json")
    given = parser.parse_args()
    end = time.perf_counter() + 60 * given.minutes
    console = Console(width=120)
    record: dict[str, Any] = {"signature": signature(DEVICE, dtype="torch.bfloat16", seed=0)}

    def keep(name: str, value: Any) -> None:
        record[name] = value
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(record) + "\n", encoding="utf-8")
        console.print(f"{name} after {60 * given.minutes - (end - time.perf_counter()):.0f} s")

    rates = {"tanh": tanh_rates(), "product": product_rate(), "copy": copy_rate()}
    keep("rates", rates)
    of_additive = limits_of_additive(rates["tanh"]["f32"])
    of_relative = limits_of_relative(rates["product"], rates["copy"])
    keep("limits", {"additive": of_additive, "t5": of_relative, "alibi": of_relative})
    attention, inputs = additive_inputs(*ADDITIVE, torch.bfloat16)
    found = timed(additive_versions(attention), inputs, list(attention.parameters()), given.seconds)
    keep("additive", found)
    show(console, "Additive, batch {}, {} long, hidden {}".format(*ADDITIVE), found, of_additive)
    B, H, n, E = RELATIVE
    schemes = {"t5": T5(H), "alibi": ALiBi(H), "shaw": Shaw(E)}

    def relative(name: str, ways: Callable[..., dict[str, Callable[..., Tensor]]]) -> None:
        scheme = schemes[name].to(DEVICE)
        found = timed(ways(scheme, n), relative_inputs(*RELATIVE), list(scheme.parameters()), given.seconds)
        keep(name, record.get(name, {}) | found)
        show(console, f"{name}, batch {B}, {H} heads, {n} long, {E} wide", found, of_relative)

    def over_lengths() -> None:
        rows = growth(0.1, end)
        keep("growth", rows | {"exponents": {name: exponents(row) for name, row in rows.items()}})
        console.print(record["growth"])

    parts: list[Step] = [partial(relative, name, relative_versions) for name in schemes]
    parts += [lambda: keep("accuracy", accuracy()), over_lengths]
    # Last, as they are compiled slowly and may fail.
    parts += [partial(relative, name, flex_version) for name in ("alibi", "t5")]
    for part in parts:
        if time.perf_counter() < end:
            part()
    console.print(record.get("accuracy"))


if __name__ == "__main__":
    main()
