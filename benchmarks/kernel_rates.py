"""What the GPU can do at most, measured: hardware tanhs, products and bytes a second."""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from measure import interleave, large_product

TIMES, BLOCK, PROGRAMS = 512, 1024, 132 * 16


@triton.jit
def _tanhs(out_at, TIMES: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = (at % 7).to(tl.float32) * 0.1
    if KIND == "f16x2":
        y = x.to(tl.float16)
        for _ in range(TIMES):
            y = tl.inline_asm_elementwise("tanh.approx.f16x2 $0, $1;", "=r,r", [y], tl.float16, True, 2)
        x = y.to(tl.float32)
    elif KIND == "bf16x2":
        z = x.to(tl.bfloat16)
        for _ in range(TIMES):
            z = tl.inline_asm_elementwise("tanh.approx.bf16x2 $0, $1;", "=r,r", [z], tl.bfloat16, True, 2)
        x = z.to(tl.float32)
    else:
        for _ in range(TIMES):
            x = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    tl.store(out_at + at, x)


def tanh_rates() -> dict[str, float]:
    """Measures the hardware tanhs a second in each of their forms; packed ones count as two."""
    out = torch.empty(PROGRAMS * BLOCK, device="cuda")

    def step(kind: str) -> Callable[[], Any]:
        run: Any = _tanhs
        return lambda: run[(PROGRAMS,)](out, TIMES=TIMES, KIND=kind, BLOCK=BLOCK, num_warps=4)

    times = interleave({kind: step(kind) for kind in ("f32", "f16x2", "bf16x2")}, "cuda", 0.5, least=10)
    return {kind: TIMES * out.numel() / timing.median for kind, timing in times.items()}


def product_rate() -> float:
    """Measures the operations a second of a large product in bfloat16."""
    product, flops = large_product("cuda", torch.bfloat16)
    return flops / interleave({"product": product}, "cuda", 0.5, least=10)["product"].median
