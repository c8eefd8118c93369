"""The parts on a CUDA device: equal to their definition in float64, on fused kernels, ready for capture."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import ATTENTION
from regard.build import ON_TOKENS, REFUSED, build_heads, build_part
from regard.config import HeadsSettings, PartSettings
from regard.mask import Mask, causal, padding, padding_both
from regard.position import POSITION
from tests.parts import MASKS, H, K, Q, leaves, make_attention, make_bias, make_inputs

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
# Relative to the largest number: float32 products round near 1e-6, bfloat16 inputs near 1e-2.
NEAR = {torch.float32: 1e-4, torch.bfloat16: 4e-2}


def near(actual, expected, dtype):
    scale = float(expected.abs().amax()) + 1e-6
    assert_close(actual.double().cpu() / scale, expected / scale, rtol=0, atol=NEAR[dtype])


def to_device(mask):
    moved = {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in vars(mask).items()}
    if mask.query_lengths is not None and mask.key_lengths is mask.query_lengths:
        moved["query_lengths"] = moved["key_lengths"]
    return Mask(**moved)


@pytest.mark.parametrize("dtype", list(NEAR), ids=str)
@pytest.mark.parametrize("bias", ["no bias", "full bias", "bias per head and key"])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("name", ATTENTION)
def test_value_and_gradient_equal_the_definition(name, kind, bias, dtype):
    n = K if "both" in kind or "all" in kind else Q
    mask = MASKS[kind](n, K)
    attention = make_attention(name)
    b = make_bias(bias) if n == Q or bias != "full bias" else None
    given = [x.to(dtype).double() for x in (*make_inputs(name, n_queries=n), *([] if b is None else [b]))]
    exact = leaves(given)
    expected = attention.weights(*exact[:2], mask, *exact[3:]) @ exact[2]
    fast = leaves([x.cuda().to(dtype) for x in given])
    actual = make_attention(name).cuda().to(dtype)(*fast[:3], to_device(mask), *fast[3:])
    near(actual, expected.detach(), dtype)
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    want = torch.autograd.grad((expected * weight).sum(), exact)
    got = torch.autograd.grad((actual * weight.cuda().to(dtype)).sum(), fast)
    for one, other in zip(got, want, strict=True):
        assert one.isfinite().all()
        near(one, other, dtype)


def test_causal_and_padded_self_attention_stays_on_flash():
    q = torch.randn(2, 8, 256, 64, device="cuda", dtype=torch.bfloat16)
    attention = ATTENTION["scaled_dot"]()
    lengths = torch.tensor([256, 10], device="cuda")
    for mask in (Mask(), causal(), causal() & padding_both(lengths, 256)):
        assert attention.kernel(q, q, q, mask) in {"flash", "cudnn"}
    assert attention.kernel(q, q, q, padding_both(lengths, 256)) in {"efficient", "cudnn"}


def test_short_sequences_get_our_own_kernel():
    q = torch.randn(2, 8, 64, 64, device="cuda", dtype=torch.bfloat16)
    attention = ATTENTION["scaled_dot"]()
    for mask in (Mask(), causal(), padding(torch.tensor([64, 10], device="cuda"), 64)):
        assert attention.kernel(q, q, q, mask) == "short"


@pytest.mark.parametrize("position", POSITION)
@pytest.mark.parametrize("name", ATTENTION)
def test_every_pair_can_be_captured(name, position):
    if (name, position) in REFUSED:
        pytest.skip("refused by name")
    torch.manual_seed(0)
    scheme = build_part(POSITION, PartSettings(position), "position", {"width": 12}) if position in ON_TOKENS else None
    inside = PartSettings("none" if scheme else position)
    layer = build_heads(HeadsSettings(12, 3, attention=PartSettings(name), position=inside)).cuda()
    scheme = layer.position if scheme is None else scheme.cuda()
    x = torch.randn(2, 16, 12, device="cuda")
    places = scheme.first_positions(16).cuda()
    lengths = torch.tensor([16, 9], device="cuda")
    mask = Mask(n_keys=16, key_lengths=lengths, query_lengths=lengths)
    step = lambda: layer(*[scheme.embed(x, places)] * 3, places, places, mask)  # noqa: E731
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        expected = step().clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            captured = step()
        graph.replay()
    torch.cuda.synchronize()
    assert_close(captured, expected)


def test_additive_memory_is_linear():
    attention = ATTENTION["additive"](n_heads=H, d_query=64, d_key=64, hidden=64).cuda()
    q, k, v = (torch.randn(1, H, 2048, 64, device="cuda", requires_grad=True) for _ in range(3))
    attention(q, k, v).sum().backward()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attention(q, k, v).sum().backward()
    one_copy = H * 2048 * 2048 * 64 * 4
    assert torch.cuda.max_memory_allocated() - before < one_copy / 4
