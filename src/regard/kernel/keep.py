"""Which weights stay under dropout, asked inside a kernel."""

import triton
import triton.language as tl

from regard.kernel.chance import uniform


@triton.jit
def kept(seed_at, n, pairs, dropout):
    """Tells for numbered pairs of the n-th head, the same ones whenever it is asked."""
    return uniform(tl.load(seed_at).to(tl.uint32) + n.to(tl.uint32) * 0x85EBCA6B, pairs) >= dropout
