"""Steps on a CUDA device: captured equals plain, kernels equal their definitions, and a GPU learns what a CPU does."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from regard.attention import ATTENTION
from regard.attention.contract import masked_softmax
from regard.batch import BatchShape
from regard.build import build_model
from regard.config import ModelSettings, TrainSettings, parse_settings, preset
from regard.mask import Mask, padding, padding_both
from regard.ops import gru_gates as gates
from regard.position import POSITION
from regard.train.batching import PackedBatch, StepBatches
from regard.train.distributed import World
from regard.train.loss import LossModule, r_drop_cross_entropy, smoothed_cross_entropy
from regard.train.step import make_optimiser, make_step
from tests.test_batch import packed

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
V = 31
SHAPES = (BatchShape(5, 9, 11), BatchShape(4, 6, 6))
IN_TEXT = [name for name in POSITION if name not in {"normalised", "grid_2d", "grid_3d", "turns"}]


def make_groups(pin):
    """Return two batches of different shapes, one of them with a row to spare."""
    generator = torch.Generator().manual_seed(3)
    groups = []
    for shape in SHAPES:
        pairs = [
            tuple(torch.randint(4, V, (n,), generator=generator).tolist() for n in lengths)
            for lengths in ((5, 4), (3, 5), (1, 2), (4, 5))
        ]
        ids = packed(pairs, shape)
        n_tokens = sum(len(tgt) + 1 for _, tgt in pairs)
        groups.append(StepBatches([PackedBatch(ids.pin_memory() if pin else ids, shape, False)], n_tokens, 0, 0, 0))
    return groups


def losses(device, family, n_steps, changes, train, captured=True, lr=1e-3):
    """Return the mean loss of each step of a small model."""
    torch.manual_seed(1)
    tables = {**preset("tiny", family)["model"], "d_model": 32, "d_ff": 48, **changes}
    model = build_model(parse_settings(ModelSettings, tables), (V, V)).to(device).train()
    settings = TrainSettings(**{"precision": "float32", **train})
    message = []
    step = make_step(
        LossModule(model, 0.1, settings.r_drop),
        make_optimiser(model, settings),
        settings,
        World(),
        torch.device(device),
        message.append,
    )
    step = step if captured or device == "cpu" else step.plain
    groups, result = make_groups(device == "cuda"), []
    for i in range(n_steps):
        torch.manual_seed(i)
        result.append(float(step(groups[i % 2], lr)) / groups[i % 2].n_tokens)
    assert not message
    return torch.tensor(result)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("r_drop", [0.0, 3.0])
@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_captured_steps_equal_plain_ones_bit_for_bit(family, r_drop, precision):
    train = {"r_drop": r_drop, "precision": precision}
    plain, captured = (losses("cuda", family, 12, {"dropout": 0.2}, train, each) for each in (False, True))
    assert_close(captured, plain, rtol=0, atol=0)


@pytest.mark.parametrize("changes", [{}, {"norm_place": "before"}, {"norm": "rms"}, {"norm": "batch"}], ids=str)
@pytest.mark.parametrize("r_drop", [0.0, 3.0])
@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_a_gpu_learns_what_a_cpu_learns(family, r_drop, changes):
    changes = {"dropout": 0.0, **changes}
    # At ten times this rate a Transformer on a CPU whose weights differ in the last digit ends 1e-2 away from itself.
    lr = {"transformer": 1e-4, "recurrent": 1e-3}[family]
    on_cpu, on_gpu = (losses(device, family, 200, changes, {"r_drop": r_drop}, lr=lr) for device in ("cpu", "cuda"))
    assert on_cpu[-1] < 0.8 * on_cpu[0]
    assert_close(on_gpu, on_cpu, rtol=0, atol=1e-3)


@pytest.mark.parametrize("position", IN_TEXT)
def test_every_position_is_captured(position):
    losses("cuda", "transformer", 6, {"position": {"name": position}}, {})


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
@pytest.mark.parametrize("attention", ATTENTION)
def test_every_attention_is_captured(attention, family):
    changes = {"attention": {"name": attention}, "position": {"name": "none"}}
    losses("cuda", family, 6, changes, {})


def near(got, want, dtype):
    scale = float(want.detach().abs().amax()) + 1e-6
    assert_close(got.double() / scale, want.double() / scale, rtol=0, atol={2: 3e-2, 4: 1e-5}[dtype.itemsize])


def check(fast, plain, inputs, dtype):
    """Compare value and gradients with the plain form in float64."""
    exact = [x.double().requires_grad_() for x in inputs]
    given = [x.to(dtype).requires_grad_() for x in inputs]
    got, want = fast(*given), plain(*exact)
    near(got, want, dtype)
    weight = torch.randn_like(want)
    grads = torch.autograd.grad((got.double() * weight).sum(), given), torch.autograd.grad((want * weight).sum(), exact)
    for one, other in zip(*grads, strict=True):
        near(one, other, dtype)


def drawn(*shape):
    return torch.randn(*shape, device="cuda").bfloat16()


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


@DTYPES
@pytest.mark.parametrize("D", [5, 256, 1000])
def test_sums_and_norms_equal_their_definitions(D, dtype):
    from regard.kernels.norm import add_dropout, add_norm

    torch.manual_seed(0)
    x, update, weight, bias = drawn(3, 7, D), drawn(3, 7, D), drawn(D), drawn(D)
    check(
        lambda x, u, w, b: add_norm(x, u, w, b, 1e-5, 0.0),
        lambda x, u, w, b: F.layer_norm(x + u, (D,), w, b, 1e-5),
        (x, update, weight, bias),
        dtype,
    )
    check(
        lambda x, w, b: add_norm(x, None, w, b, 1e-5, 0.0),
        lambda x, w, b: F.layer_norm(x, (D,), w, b, 1e-5),
        (x, weight, bias),
        dtype,
    )
    check(lambda x, u: add_dropout(x, u, 0.0), lambda x, u: x + u, (x, update), dtype)


def test_dropout_drops_its_share_and_learns_where_it_does_not():
    from regard.kernels.linear import feed_forward
    from regard.kernels.norm import add_dropout, add_norm

    torch.manual_seed(0)
    x = torch.ones(500, 400, device="cuda", requires_grad=True)
    zeros, one, none = torch.zeros_like(x), torch.eye(400, device="cuda"), torch.zeros(400, device="cuda")
    for dropped in (add_dropout(zeros, x, 0.3), feed_forward(x, one, none, one, none, 0.3)):
        assert abs(float((dropped == 0).float().mean()) - 0.3) < 0.005
        assert_close(dropped.max(), torch.tensor(1 / 0.7, device="cuda"))
        assert float((dropped == 0).float().mean(0).std()) < 0.03
        (gradient,) = torch.autograd.grad(dropped.sum(), x)
        assert_close(gradient, dropped.detach())
    weight, bias = torch.randn(2, 400, device="cuda")
    torch.manual_seed(5)
    out = add_norm(zeros, x, weight, bias, 1e-5, 0.3)
    ((gradient),) = torch.autograd.grad((out * torch.randn_like(out)).sum(), x)
    assert abs(float((gradient == 0).float().mean()) - 0.3) < 0.005
    torch.manual_seed(5)
    assert_close(add_norm(zeros, x, weight, bias, 1e-5, 0.3), out, rtol=0, atol=0)


@DTYPES
def test_linear_maps_equal_their_definition(dtype):
    from regard.kernels.linear import column_sums, linear

    torch.manual_seed(0)
    check(linear, F.linear, (drawn(3, 701, 37), drawn(53, 37), drawn(53)), dtype)
    tall = drawn(10_007, 67)
    assert_close(column_sums(tall).double(), tall.double().sum(0), rtol=1e-4, atol=1e-2)


@DTYPES
@pytest.mark.parametrize("sizes", [(1, 5, 3), (701, 37, 53), (2000, 64, 256)], ids=str)
def test_feed_forward_networks_equal_their_definition(sizes, dtype):
    from regard.kernels.linear import feed_forward

    torch.manual_seed(0)
    N, D, inner = sizes
    check(
        lambda x, w1, b1, w2, b2: feed_forward(x, w1, b1, w2, b2, 0.0),
        lambda x, w1, b1, w2, b2: F.linear(F.linear(x, w1, b1).relu(), w2, b2),
        (drawn(3, N, D), drawn(inner, D), drawn(inner), drawn(D, inner), drawn(D)),
        dtype,
    )


@DTYPES
def test_maps_of_one_input_equal_their_definition_whether_their_gradients_lie_together_or_not(dtype):
    from regard.kernels.attention_short import short_attention
    from regard.kernels.linear import joint_linear

    torch.manual_seed(0)
    x, weight, bias = drawn(3, 17, 24), drawn(3 * 24, 24) / 8, drawn(3 * 24)

    def mixed(cut, attend):
        return lambda x, w, b: attend(*(part.unflatten(-1, (2, 12)).transpose(1, 2) for part in cut(x, w, b)))

    def exact(q, k, v):
        return ATTENTION["scaled_dot"]().weights(q, k) @ v

    given = x, weight, bias
    cut = mixed(lambda x, w, b: F.linear(x, w, b).split(24, -1), exact)
    joined = lambda x, w, b: joint_linear(x, w, b, [24] * 3)  # noqa: E731
    check(mixed(joined, lambda q, k, v: short_attention(q, k, v, None, False, 12**-0.5)), cut, given, dtype)
    check(mixed(joined, exact), cut, given, dtype)


SHORT = [(5, 7, 3), (19, 19, 8), (33, 17, 64), (64, 64, 64), (1, 50, 20)]
KINDS = [(sizes, dtype) for dtype in (torch.float32, torch.bfloat16) for sizes in SHORT]


@pytest.mark.parametrize(("sizes", "dtype"), [*KINDS, ((64, 64, 128), torch.bfloat16)], ids=str)
@pytest.mark.parametrize("lengths", [None, (7, 2, 0)], ids=str)
def test_short_attention_equals_its_definition(sizes, lengths, dtype):
    from regard.kernels.attention_short import short_attention

    torch.manual_seed(0)
    Q, K, E = sizes
    ends = None if lengths is None else torch.tensor(lengths, device="cuda").clamp(max=K)
    q, k, v = drawn(3, Q, 2, E).transpose(1, 2), drawn(3, 2, K, E), drawn(3, 2, K, E)
    for causal in {False, Q == K}:
        mask = Mask(n_keys=K, key_lengths=ends, causal=causal)
        check(
            lambda q, k, v, causal=causal: short_attention(q, k, v, ends, causal, E**-0.5),
            lambda q, k, v, mask=mask: ATTENTION["scaled_dot"]().weights(q, k, mask) @ v,
            (q, k, v),
            dtype,
        )


@pytest.mark.parametrize(
    ("width", "dtype", "taken"), [(128, "float32", False), (64, "float32", True), (128, "bfloat16", True)]
)
@pytest.mark.parametrize("autocast", [False, True])
def test_wide_heads_are_short_only_where_they_compile_soon(width, dtype, taken, autocast):
    from regard.ops import short_attention_fits

    q = torch.empty(1, 1, 5, width, dtype=getattr(torch, dtype), device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        assert short_attention_fits(q, q, q, Mask(), None, 0.0) == (taken or autocast)


FEW = [(1, 1, 7, 11, 5), (1, 1, 33, 256, 256), (2, 5, 19, 37, 16), (1, 16, 512, 300, 129), (3, 2, 1, 1, 1)]


@DTYPES
@pytest.mark.parametrize("sizes", FEW, ids=str)
@pytest.mark.parametrize("lengths", [None, (7, 2, 0)], ids=str)
def test_additive_attention_of_few_queries_equals_its_definition(sizes, lengths, dtype):
    from regard.kernels.additive_short import additive_attention_short

    torch.manual_seed(0)
    H, Q, S, width, E = sizes
    ends = None if lengths is None else torch.tensor(lengths, device="cuda").clamp(max=S)
    inputs = drawn(3, H, Q, width), drawn(3, H, S, width), drawn(H, width) / width**0.5, drawn(3, H, S, E)
    check(lambda *given: additive_attention_short(*given, ends), lambda *given: looked(*given, ends), inputs, dtype)


OTHERS = {
    "causal": (1, 7, Mask(causal=True), None),
    "window": (1, 7, Mask(window=3), None),
    "padded queries": (7, 7, padding_both([7, 2, 1], 7), None),
    "lengths for each query": (2, 7, padding(torch.tensor([[7, 2], [1, 1], [3, 0]]), 7), None),
    "bias": (1, 7, Mask(), torch.ones(1, 1, 1, 7)),
    "many queries": (17, 7, Mask(), None),
    "many keys": (1, 513, Mask(), None),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_calls_do_not_take_the_kernel_for_few_queries(kind):
    torch.manual_seed(0)
    attention = ATTENTION["additive"](n_heads=1, d_query=8, d_key=8).cuda()
    Q, S, mask, bias = OTHERS[kind]
    rules = {name: None if x is None else x.cuda() for name, x in vars(mask).items() if name.endswith("_lengths")}
    mask, bias = replace(mask, **rules), None if bias is None else bias.cuda()
    q, k = torch.randn(3, 1, Q, 8, device="cuda"), torch.randn(3, 1, S, 8, device="cuda")
    assert attention.kernel(q[:, :, :1], k[:, :, :7], k[:, :, :7]) == "few"
    assert attention.kernel(q, k, k, mask, bias) == "blocks"
    assert_close(attention(q, k, k, mask, bias), attention.weights(q, k, mask, bias) @ k, rtol=1e-4, atol=1e-5)


def looked(f_q, f_k, w, v, ends):
    scores = torch.einsum("bhqkf,hf->bhqk", torch.tanh(f_q[:, :, :, None] + f_k[:, :, None]), w)
    allowed = Mask(key_lengths=ends).tile(range(f_q.shape[2]), range(f_k.shape[2]), f_q.device)
    return masked_softmax(scores, allowed) @ v


@DTYPES
@pytest.mark.parametrize("D", [5, 256, 1000])
def test_gates_equal_their_definition(D, dtype):
    from regard.kernels.gru import gru_gates

    torch.manual_seed(0)
    check(gru_gates, gates, (drawn(7, 3 * D), drawn(7, 3 * D), drawn(7, D)), dtype)


def written(words, state, f_k, values, ends, maps):
    """Return what the fused writer gives, one step after another by plain formulas."""
    w_context, w_state, b_state, w_q, w_v = maps
    states, contexts = [], []
    for word in words:
        contexts.append(looked((state @ w_q)[:, None, None], f_k[:, None], w_v[None], values[:, None], ends)[:, 0, 0])
        state = gates(word + F.linear(contexts[-1], w_context), F.linear(state, w_state, b_state), state)
        states.append(state)
    return torch.cat([torch.stack(states), torch.stack(contexts)], dim=-1)


def writer_inputs(T, S, D, width, E):
    shapes = (T, 3, 3 * D), (3, D), (3, S, width), (3, S, E), (3 * D, E), (3 * D, D), (3 * D,), (D, width), (width,)
    scales = [1.0] * 4 + [shape[-1] ** -0.5 for shape in shapes[4:]]
    return [drawn(*shape) * scale for shape, scale in zip(shapes, scales, strict=True)]


@DTYPES
@pytest.mark.parametrize("sizes", [(1, 3, 4, 4, 4), (6, 7, 5, 11, 6), (9, 37, 64, 130, 17)], ids=str)
@pytest.mark.parametrize("lengths", [None, (7, 2, 0)], ids=str)
def test_the_fused_writer_equals_its_definition(sizes, lengths, dtype):
    from regard.kernels.gru import attention_gru

    torch.manual_seed(0)
    ends = None if lengths is None else torch.tensor(lengths, device="cuda").clamp(max=sizes[1])
    check(
        lambda *given: torch.cat(attention_gru(*given[:4], ends, given[4:]), dim=-1),
        lambda *given: written(*given[:4], ends, given[4:]),
        writer_inputs(*sizes),
        dtype,
    )


def test_the_fused_writer_gives_the_same_gradients_each_time():
    from regard.kernels.gru import attention_gru

    torch.manual_seed(0)
    given = [x.requires_grad_() for x in writer_inputs(11, 37, 256, 256, 256)]
    result = [torch.autograd.grad(attention_gru(*given[:4], None, given[4:])[0].sum(), given) for _ in range(3)]
    for other in result[1:]:
        assert_close(other, result[0], rtol=0, atol=0)


@pytest.mark.parametrize(
    "changes", [{"n_decoder_layers": 2}, {"attention": {"name": "gaussian"}}, {"state_norm": "layer"}], ids=str
)
def test_a_gpu_learns_step_by_step_what_a_cpu_learns(changes):
    on_cpu, on_gpu = (losses(device, "recurrent", 100, {"dropout": 0.0, **changes}, {}) for device in ("cpu", "cuda"))
    assert_close(on_gpu, on_cpu, rtol=0, atol=1e-3)


@DTYPES
@pytest.mark.parametrize("n_words", [53, 4096, 9000])
def test_losses_equal_their_definitions(n_words, dtype):
    from regard.kernels.losses import rdrop_loss, smoothed_loss

    torch.manual_seed(0)
    say, real = torch.randint(n_words, (11,), device="cuda"), torch.rand(11, device="cuda") > 0.3
    logits = drawn(22, n_words)
    for rows, fast, plain in (
        (11, smoothed_loss, lambda x: smoothed_cross_entropy(x[None], say[None], real[None], 0.1)),
        (
            22,
            lambda *given: rdrop_loss(*given, 3.0),
            lambda x: r_drop_cross_entropy(x[:, None], say.repeat(2)[:, None], real.repeat(2)[:, None], 0.1, 3.0),
        ),
    ):
        exact = logits[:rows].double().requires_grad_()
        want = plain(exact)
        (gradient,) = torch.autograd.grad(want[0], exact)
        given = logits[:rows].to(dtype).clone()
        got = fast(given, say, real, 0.1)
        assert_close(torch.stack(got).double(), torch.stack(want).detach().double(), rtol=1e-4, atol=1e-4)
        near(given, gradient, dtype)
