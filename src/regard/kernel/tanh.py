"""The hyperbolic tangent inside a kernel: the GPU's own instruction, or exact."""

import triton
import triton.language as tl


@triton.jit
def tanh(x, HARDWARE: tl.constexpr):
    """Gives tanh of each number; the instruction is wrong by 5e-4 of the result at most, the formula by rounding alone.

    A multiprocessor does 16 of the instruction a cycle. Its packed forms for half precision are two instructions each
    in machine code, so they are no faster.
    """
    if HARDWARE:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    power = tl.exp(-2.0 * tl.abs(x))  # of a number that is never above 0, so that none is too large
    size = (1.0 - power) / (1.0 + power)
    return tl.where(x < 0.0, -size, size)
