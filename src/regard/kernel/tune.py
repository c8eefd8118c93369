"""Which shape of tiles a kernel takes: the fastest of a short list, tried once for each kind of call."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import triton

# In Triton's interpreter, on a CPU, times mean nothing; and whoever does not want to wait for trials says so.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TRIES = not INTERPRETED and os.environ.get("REGARD_TUNE") != "0"


def tuned(
    names: Sequence[str], shapes: Sequence[tuple[int | None, ...]], key: Sequence[str], sums: Sequence[str] = ()
) -> Callable[[Any], Any]:
    """Decorates a kernel whose constants `names`, then warps, stages and most registers a thread, are rows of `shapes`.

    The first row is taken where nothing is tried. `sums` names what the kernel adds to, so that trying it leaves no
    trace there.
    """
    configs = [_config(names, row) for row in (shapes if TRIES else shapes[:1])]
    return triton.autotune(configs, key=list(key), restore_value=list(sums) or None)


def about(Q: int, K: int) -> int:
    """Gives a size that calls with so many queries and keys share, so that not every length is tried anew."""
    return next((size for size in (256, 1024, 4096) if max(Q, K) <= size), 16384)


def _config(names: Sequence[str], row: tuple[int | None, ...]) -> Any:
    *sizes, warps, stages, registers = row
    registers = None if INTERPRETED else registers
    constants = dict(zip(names, sizes, strict=True))
    return triton.Config(constants, num_warps=warps, num_stages=stages, maxnreg=registers)
