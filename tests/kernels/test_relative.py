"""The kernel with a bias by offset against the plain formula, in Triton's interpreter or on a GPU."""

import pytest
import torch

from regard import ops
from regard.attention import ScaledDot
from regard.attention.contract import masked_softmax
from regard.build import build_heads
from regard.config import HeadsSettings, PartSettings
from regard.mask import Mask, causal, padding
from regard.position import ALiBi, OffsetBias
from tests.kernels.cases import GPU, INTERPRETED, NEAR, agree, masks, moved

SIZES = (2, 2, 150, 277, 12, 18)  # B, H, Q, K, E, E3: tiles near the diagonal and beyond the reach on either side
KINDS = list(masks(*SIZES[:4]))
# On a GPU, where each combination is compiled anew, every mask in one type, and some in the others.
EACH = [(kind, dtype) for kind in KINDS for dtype in NEAR if dtype == torch.bfloat16 or kind in {KINDS[0], KINDS[-3]}]
QUICK = {"causal, window, padding", "any"}
SOME_SLOW = [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
REACH = 5
SHAPES = {"one table": (1, 2, 1, 2 * REACH + 1), "of each query": (2, 2, 150, 2 * REACH + 1)}
SCALE = 0.3


def noise(*shapes):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def in_a_row(Q, K):
    return torch.arange(Q)[None] + 3, torch.arange(K)[None]


def inputs(B, H, Q, K, E, E3, *table):
    return noise((B, H, Q, E), (B, H, K, E), (B, H, K, E3), *table)


def definition(mask, places, slopes=None):
    def mix(given):
        q, k, v, *table = given
        bias = OffsetBias(*places, *(table or [None]), slopes).materialise(q.dtype)
        scores = SCALE * q @ k.transpose(-1, -2) + bias
        return masked_softmax(scores, mask.tile(range(q.shape[2]), range(k.shape[2]), torch.device("cpu"))) @ v

    return mix


def kernel(mask, places, device, slopes=None, dropout=0.0):
    from regard.kernels.relative_forward import relative_attention

    on = [x.to(device) for x in places]
    steep = None if slopes is None else slopes.to(device)

    def run(given):
        q, k, v, *table = given
        bias = OffsetBias(*on, *(table or [None]), steep)
        return relative_attention(q, k, v, moved(mask, device), bias, SCALE, dropout)

    return run


def check(mask, places, shape, device, dtype, sizes=SIZES):
    given = inputs(*sizes, *([] if shape is None else [shape]))
    slopes = torch.tensor([0.5, 0.03], dtype=torch.float64) if shape is None else None
    fast, plain = kernel(mask, places, device, slopes), definition(mask, places, slopes)
    agree(fast, plain, given, device, dtype)


@INTERPRETED
@pytest.mark.parametrize("kind", SOME_SLOW)
def test_value_and_gradients_equal_the_formula(kind):
    check(masks(*SIZES[:4])[kind], in_a_row(*SIZES[2:4]), SHAPES["one table"], "cpu", torch.float32)


@INTERPRETED
@pytest.mark.parametrize("rule", [Mask(), causal(offset=3)], ids=["everything", "causal"])
@pytest.mark.parametrize("shape", [SHAPES["of each query"], None], ids=["of each query", "slopes"])
def test_tables_of_each_query_and_slopes(shape, rule):
    check(padding([277, 100], 277) & rule, in_a_row(*SIZES[2:4]), shape, "cpu", torch.float32)


def scattered(B, Q, K):
    """Gives places that are in no row: padding at 0, and sequences that begin elsewhere."""
    q_places = (torch.arange(Q) + 7 * torch.arange(B)[:, None]) * (torch.arange(Q) < Q - 20)
    return q_places, (torch.arange(K) * (torch.arange(K) < K - 30))[None]


@INTERPRETED
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_places_that_are_in_no_row(shape):
    check(Mask(), scattered(2, *SIZES[2:4]), shape, "cpu", torch.float32)


@INTERPRETED
@pytest.mark.parametrize("reach", [1, 40, 400])
def test_every_reach(reach):
    sizes = (1, 1, 140, 130, 5, 3)
    check(Mask(), in_a_row(140, 130), (1, 1, 1, 2 * reach + 1), "cpu", torch.float32, sizes=sizes)


# Around the ends of tiles and of a reach of 128, so that tiles before, near and behind are none, one or several.
LENGTHS = [(127, 128), (129, 300), (391, 127), (385, 449)]


@INTERPRETED
@pytest.mark.parametrize("rule", ["everything", "causal"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_tiles_on_every_side(lengths, rule):
    mask = {"everything": Mask(), "causal": causal(offset=2)}[rule]
    sizes = (1, 2, *lengths, 4, 4)
    check(mask, in_a_row(*lengths), None, "cpu", torch.float32, sizes)
    check(mask, in_a_row(*lengths), (1, 2, 1, 257), "cpu", torch.float32, sizes)


@INTERPRETED
def test_a_table_and_slopes_add_up():
    slopes, places = torch.tensor([0.5, 0.03], dtype=torch.float64), in_a_row(*SIZES[2:4])
    given = inputs(*SIZES, SHAPES["of each query"])
    mask = padding([277, 100], 277)
    agree(kernel(mask, places, "cpu", slopes), definition(mask, places, slopes), given, "cpu", torch.float32)


def far_away(device, dtype, length, value):
    """Gives what queries see with a slope of 1 when the first of 600 keys is that long and has that value."""
    sizes = (1, 1, 600, 600, 16, 16)
    q, k, v = (x.to(dtype) for x in inputs(*sizes))
    k[:, :, 0] *= length
    v[:, :, 0] = value
    slopes, places = torch.ones(1, dtype=torch.float64), in_a_row(600, 600)
    got = kernel(Mask(), places, device, slopes)([x.to(device) for x in (q, k, v)])
    return got.double().cpu(), definition(Mask(), places, slopes)([x.double() for x in (q, k, v)])


def check_far_keys(device, dtype):
    """Asks that keys without any weight are never looked at, and that none is left out that may have some."""
    unseen, _ = far_away(device, dtype, 1.0, float("nan"))
    assert unseen[:, :, 384:].isfinite().all()
    long, want = far_away(device, dtype, 300.0, 5.0)
    assert (want[:, :, -64:].amax(dim=-1) > 4.0).any()
    torch.testing.assert_close(long, want, rtol=0, atol=NEAR[dtype] * 10)


@INTERPRETED
def test_keys_too_far_down_a_slope_are_left_out_and_no_others():
    check_far_keys("cpu", torch.float32)


@INTERPRETED
def test_half_precision():
    sizes = (1, 2, 300, 300, 16, 16)  # bfloat16 is none of the interpreter's types
    check(causal(), in_a_row(300, 300), (1, 2, 1, 41), "cpu", torch.float16, sizes=sizes)


@INTERPRETED
def test_one_query_of_several_sequences_keeps_their_tables_apart():
    sizes = (2, 1, 1, 130, 5, 3)
    check(Mask(), in_a_row(1, 130), (2, 1, 1, 2 * REACH + 1), "cpu", torch.float32, sizes=sizes)


def check_dropout(device):
    """Reads the dropped weights off the output, and asks for the gradients that belong to them."""
    B, H, Q, K, E = 1, 2, 70, 130, 4
    q, k, table = (x.float().to(device) for x in noise((B, H, Q, E), (B, H, K, E), (1, H, 1, 2 * REACH + 1)))
    one_value_each = torch.eye(K, device=device).expand(B, H, K, K).contiguous()
    places = in_a_row(Q, K)
    run = kernel(causal(), places, device, dropout=0.5)
    torch.manual_seed(5)
    dropped = run([q, k, one_value_each, table])
    whole = kernel(causal(), places, device)([q, k, one_value_each, table])
    keep = (dropped > 0).double().cpu()
    torch.testing.assert_close(dropped, whole * 2 * keep.to(device, torch.float32), rtol=1e-4, atol=1e-5)
    assert 0.4 < float(keep.sum() / (whole > 0).sum()) < 0.6

    def fast(given):
        torch.manual_seed(5)
        return run(given)

    def plain(given):
        scores = SCALE * given[0] @ given[1].transpose(-1, -2)
        scores = scores + OffsetBias(*places, given[3]).materialise(torch.float64)
        return (masked_softmax(scores, causal().tile(range(Q), range(K), torch.device("cpu"))) * keep * 2) @ given[2]

    given = [x.cpu().double() for x in (q, k)] + noise((B, H, K, 5)) + [table.cpu().double()]
    agree(fast, plain, given, device, torch.float32)


@INTERPRETED
def test_dropped_weights_are_the_same_in_both_directions():
    check_dropout("cpu")


@pytest.fixture
def small_tiles(monkeypatch):
    """Gives tiles whose products in float32, which no layer asks for, are compiled in seconds."""
    from regard.kernels import relative_backward, relative_forward, relative_grad_q

    shape = {"ROWS": 32, "COLS": 32, "NEAR_STAGES": 1, "num_warps": 4, "num_stages": 1}
    monkeypatch.setattr(relative_forward, "SHAPES", {"table": shape, "slopes": shape})
    monkeypatch.setattr(relative_backward, "SHAPE", shape)
    monkeypatch.setattr(relative_grad_q, "SHAPE", shape)


class TestOnGPU:
    pytestmark = GPU

    @pytest.mark.parametrize(("kind", "dtype"), EACH)
    def test_value_and_gradients_equal_the_formula(self, kind, dtype, request):
        if dtype == torch.float32:
            request.getfixturevalue("small_tiles")
        check(masks(*SIZES[:4])[kind], in_a_row(*SIZES[2:4]), SHAPES["one table"], "cuda", dtype)

    @pytest.mark.parametrize("rule", [Mask(), causal(offset=3)], ids=["everything", "causal"])
    @pytest.mark.parametrize("shape", [SHAPES["of each query"], None], ids=["of each query", "slopes"])
    def test_tables_of_each_query_and_slopes(self, shape, rule):
        check(padding([277, 100], 277) & rule, in_a_row(*SIZES[2:4]), shape, "cuda", torch.bfloat16)

    @pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
    def test_places_that_are_in_no_row(self, shape):
        check(Mask(), scattered(2, *SIZES[2:4]), shape, "cuda", torch.bfloat16)

    @pytest.mark.parametrize("width", [64, 128])
    def test_whole_tiles_without_rules(self, width):
        sizes = (2, 2, 512, 384, width, width)
        check(Mask(), in_a_row(512, 384), (1, 2, 1, 2 * 100 + 1), "cuda", torch.bfloat16, sizes=sizes)

    def test_keys_too_far_down_a_slope_are_left_out_and_no_others(self):
        check_far_keys("cuda", torch.bfloat16)

    def test_dropped_weights_are_the_same_in_both_directions(self, small_tiles):
        check_dropout("cuda")

    @pytest.mark.parametrize("rule", ["everything", "causal"])
    @pytest.mark.parametrize("lengths", [(391, 127), (512, 640)])
    def test_tiles_on_every_side(self, lengths, rule):
        mask = {"everything": Mask(), "causal": causal(offset=2)}[rule]
        sizes = (1, 2, *lengths, 64, 64)
        check(mask, in_a_row(*lengths), None, "cuda", torch.bfloat16, sizes)
        check(mask, in_a_row(*lengths), (1, 2, 1, 257), "cuda", torch.bfloat16, sizes)

    @pytest.mark.parametrize("name", ["t5", "alibi", "shaw"])
    def test_layers_take_it_and_give_what_they_gave(self, name, monkeypatch):
        torch.manual_seed(0)
        settings = HeadsSettings(64, 2, position=PartSettings(name))
        layer = build_heads(settings).cuda().bfloat16()
        x = torch.randn(2, 256, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        places = torch.arange(256, device="cuda")[None]
        wanted = [x, *layer.parameters()]
        fast = layer(x, x, x, places, places, causal())
        quick = torch.autograd.grad(fast.square().sum(), wanted)
        monkeypatch.setattr(ops, "relative_attention_fits", lambda *_: False)
        plain = layer(x, x, x, places, places, causal())
        slow = torch.autograd.grad(plain.square().sum(), wanted)
        # Beside the largest gradient: the keys' bias shifts all scores alike, so that its own is rounding alone.
        largest = max(float(x.abs().amax()) for x in slow)
        for one, other, scale in zip([fast, *quick], [plain, *slow], [1.0] + [largest] * len(slow), strict=True):
            torch.testing.assert_close(one / scale, other / scale, rtol=0, atol=5e-2)

    def test_the_part_says_which_kernel_runs(self):
        q = torch.randn(2, 2, 256, 64, device="cuda", dtype=torch.bfloat16)
        places = torch.arange(256, device="cuda")[None]
        bias = ALiBi(2).cuda().offset_bias(q, places, places)
        assert ScaledDot().kernel(q, q, q, Mask(), bias) == "relative"
        assert ScaledDot().kernel(q[:, :, :8], q, q, Mask(), OffsetBias(places[:, :8], places, None, bias.slopes)) != (
            "relative"
        )

    def test_long_inputs_take_little_memory(self):
        q, k, v = (torch.randn(1, 2, 4096, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in "qkv")
        table = torch.randn(1, 2, 1, 257, device="cuda", requires_grad=True)
        places = in_a_row(4096, 4096)
        run = kernel(causal(), places, "cuda")
        run([q, k, v, table]).sum().backward()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run([q, k, v, table]).sum().backward()
        assert torch.cuda.max_memory_allocated() - before < 2 * 4096 * 4096  # a byte for each pair and head
        assert all(x.grad.isfinite().all() for x in (q, k, v, table))
