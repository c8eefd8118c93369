"""What tests of kernels share: where they run, how near they must come, and the comparison itself."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.mask import Mask, allow, causal, padding, padding_both, window

pytest.importorskip("triton", reason="Triton is not installed: it comes with PyTorch's builds for GPUs")

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
INTERPRETED = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the CUDA device instead")
# Relative to the largest number: float32 sums round near 1e-6, bfloat16 inputs near 1e-2.
NEAR = {torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 1e-2}


def masks(B: int, H: int, Q: int, K: int) -> dict[str, Mask]:
    """Gives one mask of each kind; all but the first leave some queries without any key."""
    dots = torch.rand(B, H, Q, K, generator=torch.Generator().manual_seed(3)) < 0.4
    dots[:, :, 1] = False
    both = padding_both([min(Q, K) - 5] + [min(Q, K)] * (B - 1), K) if Q == K else padding([K - 5] + [0] * (B - 1), K)
    each = padding((torch.arange(B * Q) * 7 % (K + 1)).reshape(B, Q), K)
    return {
        "everything": Mask(),
        "padding": padding([K // 3] + [0] * (B - 1), K),
        "padding of both": both,
        "padding per query": each,
        "causal": causal(),
        "causal after a cache": causal(offset=3),
        "window": window(4, offset=2),
        "causal, window, padding": causal(offset=1) & window(9, offset=1) & padding([K // 2] * B, K),
        "any": allow(dots),
        "causal, any": causal() & allow(dots[:1, :1]),
    }


def moved(mask: Mask, device: str) -> Mask:
    """Gives the mask on a device."""
    names = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in vars(mask).items()}
    if mask.query_lengths is not None and mask.key_lengths is mask.query_lengths:
        names["query_lengths"] = names["key_lengths"]
    return Mask(**names)


def agree(
    fast: Callable[[list[Tensor]], Tensor],
    plain: Callable[[list[Tensor]], Tensor],
    given: list[Tensor],
    device: str,
    dtype: torch.dtype,
) -> None:
    """Asserts that value and gradients are those of the definition in float64, and finite."""
    rounded = [x.to(dtype).double() for x in given]
    exact = [x.detach().clone().requires_grad_() for x in rounded]
    quick = [x.to(device, dtype).detach().clone().requires_grad_() for x in rounded]
    want, got = plain(exact), fast(quick)
    _near(got, want, dtype)
    ahead = torch.randn(want.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(dtype).double()
    wanted = torch.autograd.grad((want * ahead).sum(), exact)
    gotten = torch.autograd.grad((got * ahead.to(device, dtype)).sum(), quick)
    for one, other in zip(gotten, wanted, strict=True):
        _near(one, other, dtype)


def _near(got: Tensor, want: Tensor, dtype: torch.dtype) -> None:
    scale = float(want.detach().abs().amax()) + 1e-3
    assert got.isfinite().all()
    assert_close(got.double().cpu() / scale, want.detach() / scale, rtol=0, atol=NEAR[dtype])
