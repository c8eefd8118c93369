"""Additive attention's kernel against the plain formula, in Triton's interpreter or on a GPU."""

import pytest
import torch

from regard.attention import Additive
from regard.attention.contract import masked_softmax
from regard.mask import Mask, causal, padding
from tests.kernels.cases import GPU, INTERPRETED, NEAR, agree, masks, moved

SIZES = (1, 2, 19, 70, 7, 18)  # B, H, Q, K, F, E: more queries and keys than a tile has, and odd widths
KINDS = list(masks(*SIZES[:4]))
# On a GPU, where each combination is compiled anew, every mask in one type, and some in the others.
EACH = [(kind, dtype) for kind in KINDS for dtype in NEAR if dtype == torch.bfloat16 or kind in {KINDS[0], KINDS[-3]}]
QUICK = {"causal, window, padding", "any"}
SOME_SLOW = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]


def noise(*shapes):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def inputs(B, H, Q, K, F, E):
    return noise((B, H, Q, F), (B, H, K, F), (H, F), (B, H, K, E))


def definition(mask):
    def mix(given):
        f_q, f_k, w, v = given
        scores = torch.einsum("bhqkf,hf->bhqk", torch.tanh(f_q[:, :, :, None] + f_k[:, :, None]), w)
        return masked_softmax(scores, mask.tile(range(f_q.shape[2]), range(f_k.shape[2]), torch.device("cpu"))) @ v

    return mix


def kernel(mask, device, hardware=False, dropout=0.0):
    from regard.kernels.additive import additive_attention

    return lambda given: additive_attention(*given, moved(mask, device), dropout, hardware)


@INTERPRETED
@pytest.mark.parametrize("kind", SOME_SLOW)
def test_value_and_gradients_equal_the_formula(kind):
    mask = masks(*SIZES[:4])[kind]
    agree(kernel(mask, "cpu"), definition(mask), inputs(*SIZES), "cpu", torch.float32)


@INTERPRETED
def test_rows_done_some_at_a_time_give_the_same(monkeypatch):
    from regard.kernels import additive

    sizes = (2, 1, 134, 23, 4, 5)
    monkeypatch.setattr(additive, "PAIRS", 128 * 23)
    monkeypatch.setattr(additive, "BUSY", 128)
    halves = [(1, (head, start, size)) for head in range(2) for start, size in ((0, 128), (128, 6))]
    assert list(additive.chunks(2, 134, 23)) == halves
    agree(kernel(causal(), "cpu"), definition(causal()), inputs(*sizes), "cpu", torch.float32)


@INTERPRETED
def test_far_numbers_do_not_overflow():
    f_q, f_k, w, v = inputs(1, 1, 3, 5, 2, 2)
    agree(kernel(Mask(), "cpu"), definition(Mask()), [100 * f_q, 300 * f_k, w, v], "cpu", torch.float32)


def check_dropout(device):
    """Reads the dropped weights off the output, and asks for the gradients that belong to them."""
    B, H, Q, K, F = 1, 2, 19, 40, 3
    f_q, f_k, w, _ = (x.float().to(device) for x in inputs(B, H, Q, K, F, 1))
    one_value_each = torch.eye(K, device=device).expand(B, H, K, K).contiguous()
    run = kernel(causal(), device, dropout=0.5)
    torch.manual_seed(5)
    dropped = run([f_q, f_k, w, one_value_each])
    whole = kernel(causal(), device)([f_q, f_k, w, one_value_each])
    keep = (dropped > 0).double().cpu()
    torch.testing.assert_close(dropped, whole * 2 * keep.to(device, torch.float32), rtol=1e-4, atol=1e-5)
    assert 0.4 < float(keep.sum() / (whole > 0).sum()) < 0.6

    def fast(given):
        torch.manual_seed(5)
        return run(given)

    def plain(given):
        scores = torch.einsum("bhqkf,hf->bhqk", torch.tanh(given[0][:, :, :, None] + given[1][:, :, None]), given[2])
        return (masked_softmax(scores, causal().tile(range(Q), range(K), torch.device("cpu"))) * keep * 2) @ given[3]

    agree(fast, plain, [x.cpu().double() for x in (f_q, f_k, w)] + noise((B, H, K, 5)), device, torch.float32)


@INTERPRETED
def test_dropped_weights_are_the_same_in_both_directions():
    check_dropout("cpu")


class TestOnGPU:
    pytestmark = GPU

    @pytest.mark.parametrize(("kind", "dtype"), EACH)
    def test_value_and_gradients_equal_the_formula(self, kind, dtype):
        mask = masks(*SIZES[:4])[kind]
        hardware = dtype.itemsize == 2
        agree(kernel(mask, "cuda", hardware), definition(mask), inputs(*SIZES), "cuda", dtype)

    def test_dropped_weights_are_the_same_in_both_directions(self):
        check_dropout("cuda")

    @pytest.mark.parametrize("sizes", [(2, 2, 200, 333, 128, 64), (1, 1, 129, 97, 256, 256)])
    def test_larger_tiles(self, sizes):
        mask = padding([sizes[3] - 9] * sizes[0], sizes[3]) & causal(offset=20)
        given = inputs(*sizes)
        given[2] /= sizes[4] ** 0.5  # as models begin: else the errors of so many tanhs add up to a score's
        agree(kernel(mask, "cuda", True), definition(mask), given, "cuda", torch.bfloat16)

    def test_the_part_says_which_kernel_runs_and_obeys_exact(self):
        q = torch.randn(2, 1, 64, 32, device="cuda")
        exact, quick = Additive(1, 32, 32, exact=True).cuda(), Additive(1, 32, 32).cuda()
        quick.load_state_dict(exact.state_dict())
        assert quick.kernel(q, q, q) == "fused"
        assert quick.kernel(q[:, :, :4], q, q) == "few"
        assert quick.kernel(q, q, q, Mask(), torch.zeros(1, 1, 64, 64, device="cuda")) == "blocks"
        torch.testing.assert_close(quick(q, q, q), exact(q, q, q), rtol=0, atol=0)
        half = q.bfloat16()
        outs = [part.bfloat16()(half, half, half) for part in (quick, exact)]
        assert not torch.equal(*outs)
        torch.testing.assert_close(*outs, rtol=0, atol=3e-2)

    def test_long_inputs_take_little_memory(self):
        part = Additive(1, 64, 64).cuda().bfloat16()
        q, k, v = (torch.randn(1, 1, 4096, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in "qkv")
        part(q, k, v, causal()).sum().backward()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        part(q, k, v, causal()).sum().backward()
        assert torch.cuda.max_memory_allocated() - before < 100 * 2**20
        assert all(x.grad.isfinite().all() for x in (q, k, v))

    def test_long_inputs_give_what_the_formula_gives(self):
        given = [x.bfloat16().double() for x in inputs(1, 1, 4096, 4096, 32, 16)]
        leaves = [x.to("cuda", torch.bfloat16).requires_grad_() for x in given]
        out = kernel(causal(), "cuda", True)(leaves)
        some = [0, 1, 127, 128, 2049, 4095]
        for row in some:
            f_q, f_k, w, v = given
            seen = [f_q[:, :, row : row + 1], f_k[:, :, : row + 1], w, v[:, :, : row + 1]]
            want = definition(Mask())(seen)
            torch.testing.assert_close(out[:, :, row : row + 1].double().cpu(), want, rtol=0, atol=4e-2)
        (d_q,) = torch.autograd.grad(out[:, :, some[-1]].sum(), leaves[:1])
        assert int((d_q[0, 0].abs().amax(dim=-1) > 0).nonzero().amin()) == some[-1]
