"""The kernels of decoding against the plain forms that a CPU runs, in Triton's interpreter or on a GPU."""

import pytest
import torch

from regard.config import DecodeSettings
from regard.engine import slot_decoder as plain
from regard.engine.slot_decoder import Slots
from regard.engine.slots import BeamState, make_hypotheses
from regard.model.norm import LayerNorm, RMSNorm
from regard.padding import EOS
from regard.search.hypothesis import INTEGERS, REALS, best_hypotheses

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def draws():
    torch.manual_seed(0)


def moved(*tensors):
    return [x.to(DEVICE, copy=True) for x in tensors]


@pytest.mark.parametrize(("B", "N", "T", "H", "E"), [(2, 3, 70, 2, 5), (1, 1, 40, 2, 16), (3, 5, 33, 1, 24)])
def test_self_attention_decode(B, N, T, H, E):
    from regard.kernels.decode import self_attention_decode

    memory, qkv = torch.randn(2, B, T, N, H * E), torch.randn(B * N, 3 * H * E)
    ancestors = torch.randint(0, N, (B, N, T), dtype=torch.int32)
    ages, own = torch.randint(0, T, (B,), dtype=torch.int32), torch.arange(N, dtype=torch.int32)
    ages[0] = 0 if B > 1 else T - 1  # the first token sees itself alone, the last all others
    ancestors[torch.arange(B)[:, None], own.long(), ages[:, None].long()] = own
    given = moved(qkv, memory, ancestors, ages)
    want = plain.self_attention(qkv, memory, ancestors, ages, H)
    out = self_attention_decode(*given, H, torch.empty(B * N, H * E, device=DEVICE))
    torch.testing.assert_close(out.cpu(), want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(given[1].cpu(), memory, rtol=0, atol=0)  # the new keys and values stand in their places


@pytest.mark.parametrize(("N", "S", "H", "E"), [(1, 5, 2, 8), (5, 37, 2, 5), (17, 130, 1, 20)])
def test_cross_attention_decode(N, S, H, E):
    from regard.kernels.decode import cross_attention_decode

    q, seen = torch.randn(3 * N, H * E), torch.randn(3, S, 2, 2, H * E)
    lengths = torch.tensor([0, 1, S], dtype=torch.int32)  # an empty slot gives zeros
    want = plain.cross_attention(q, seen[:, :, 1], lengths, H)
    there = seen.to(DEVICE)[:, :, 1].unbind(2)
    q, lengths = moved(q, lengths)
    got = cross_attention_decode(q, *there, lengths, H, torch.empty_like(q))
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("R", "V", "k"), [(3, 5000, 6), (2, 9, 6), (1, 2048, 2), (2, 4097, 9)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shift", [0.0, -50.0, 50.0])
def test_topk(R, V, k, dtype, shift):
    from regard.kernels.decode import topk

    logits = (torch.randn(R, V) * 3 + shift).to(dtype)
    known = logits.float().log_softmax(-1)
    known[:, :EOS] = -torch.inf
    gains, tokens = (x.cpu() for x in topk(*moved(logits), k, EOS))
    torch.testing.assert_close(gains, known.sort(descending=True).values[:, :k], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gains, known.gather(1, tokens), rtol=1e-5, atol=1e-5)
    assert all(len(set(row)) == k for row in tokens.tolist())
    among_equals = known.sort(descending=True, stable=True).indices[:, :k]  # the first is taken
    assert torch.equal(tokens, among_equals)


def test_tokens_below_the_least_are_never_among_them():
    from regard.kernels.decode import topk

    logits = torch.zeros(1, 40)
    logits[:, :EOS] = 9.0
    gains, tokens = topk(*moved(logits), 3, EOS)
    assert tokens.tolist() == [[3, 4, 5]]
    assert gains[0, 0].item() == pytest.approx(float(logits.log_softmax(-1)[0, 5]), abs=1e-5)  # their mass still counts


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("D", [10, 64, 300])
def test_add_norm_decode(norm, adds, D):
    from regard.kernels.norm import add_norm_decode

    made, x, update = norm(D), torch.randn(7, D), torch.randn(7, D) if adds else None
    torch.nn.init.normal_(made.weight)
    eps = torch.finfo(x.dtype).eps if made.eps is None else made.eps
    bias = made.bias.detach() if norm is LayerNorm else None
    given = [None if each is None else each.to(DEVICE) for each in (x, update, made.weight.detach(), bias)]
    for got, want in zip(add_norm_decode(*given, eps), plain.add_norm(x, update, made), strict=True):
        torch.testing.assert_close(got.cpu(), want.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("R", "D", "D2"), [(1, 10, 7), (5, 64, 130), (3, 100, 5000), (8, 512, 33)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_skinny_gemm(R, D, D2, biased, relu):
    from regard.kernels.linear import skinny_gemm

    x, weight, bias = torch.randn(R, D), torch.randn(D2, D), torch.randn(D2) if biased else None
    want = torch.nn.functional.linear(x, weight, bias)
    given = [None if each is None else each.to(DEVICE) for each in (x, weight, bias)]
    out = skinny_gemm(*given, relu).cpu()
    torch.testing.assert_close(out, want.relu() if relu else want, rtol=1e-4, atol=1e-4)


def tables(B, N, T, n_best, penalty, limits, device, rule="full"):
    """Makes what a search in slots keeps, all sentences at their beginning."""
    beams = BeamState(B, N, T, n_best if rule == "full" else N, penalty, torch.device(device), rule)
    whole = {"dtype": torch.int32, "device": device}
    slots = Slots(
        torch.zeros(B, 1, 1, 2, 1, device=device),
        torch.zeros(B, **whole),
        torch.zeros(1, 2, B, T, N, 1, device=device),
        torch.zeros(B, N, T, **whole),
        torch.zeros(B, **whole),
    )
    beams.begin(torch.arange(B, device=device), limits.to(device))
    slots.origins[:, :, 0] = torch.arange(N, **whole)
    return beams, slots


@pytest.mark.parametrize("rule", ["full", "heuristic", "never"])
@pytest.mark.parametrize(
    ("B", "N", "T", "n_best", "penalty", "ends"),
    [
        (3, 1, 12, 1, 1.0, 0),
        (4, 3, 70, 3, 1.0, 0),
        (2, 5, 20, 2, 0.0, 0),
        (3, 4, 16, 1, -0.5, 0),
        (4, 4, 9, 4, 1.0, -3),
    ],
)
def test_a_search(B, N, T, n_best, penalty, ends, rule):
    from regard.kernels.beam import BeamArgs, HistoryArgs, advance

    limits = torch.randint(3, T - 1, (B,))
    (beams, slots), (there, in_slots) = (tables(B, N, T, n_best, penalty, limits, d, rule) for d in ("cpu", DEVICE))
    for _ in range(T - 2):
        logits = torch.randn(B * N, 12) * 2
        logits[:, EOS] += ends
        gains, tokens = logits.log_softmax(-1).topk(N + 1)
        live = ~beams.final
        slots.advance(*beams.advance(gains, tokens, slots.lengths))
        args = BeamArgs(*there.columns), HistoryArgs(*there.history.columns)
        advance(*args, in_slots.origins, in_slots.lengths, *moved(gains, tokens), penalty, rule)
        assert torch.equal(in_slots.lengths.cpu(), slots.lengths)
        for name in ("totals", "n_finished", "final"):
            torch.testing.assert_close(getattr(there, name).cpu()[live], getattr(beams, name)[live])
        torch.testing.assert_close(there.best_scores.amin(1).cpu()[live], beams.best_scores[:, -1][live])
        for b in torch.nonzero(live)[:, 0].tolist():
            _compare(b, beams, slots, there, in_slots)
    assert beams.final.all(), "every sentence comes to its end"
    _compare_hypotheses(beams, slots, there, in_slots, n_best)


def _compare(b, beams, slots, there, in_slots):
    """Compares what a sentence's real hypotheses have; places that none holds may have anything."""
    age, held = int(slots.lengths[b]), beams.totals[b] > -torch.inf
    assert torch.equal(there.tokens.cpu()[b, held], beams.tokens[b, held])
    assert torch.equal(in_slots.origins.cpu()[b, held, : age + 1], slots.origins[b, held, : age + 1])
    for name in INTEGERS + REALS:
        want = getattr(beams.history, name)
        real = (beams.history.end_totals if name.startswith("end") else beams.history.totals)[b, age - 1] > -torch.inf
        torch.testing.assert_close(getattr(there.history, name).cpu()[b, age - 1, real], want[b, age - 1, real])


def _compare_hypotheses(beams, slots, there, in_slots, n_best):
    """Compares what is followed back on the device with what the plain form finds; some sentences, in another order."""
    from regard.kernels.beam import HistoryArgs, traceback

    chosen = torch.arange(len(slots.lengths) - 1, -1, -1)
    settings = DecodeSettings(beam=beams.totals.shape[1], n_best=n_best, length_penalty=beams.length_penalty)
    lengths = slots.lengths[chosen].numpy()
    want = best_hypotheses(beams.history.take(chosen, int(lengths.max())), lengths, settings)
    history = HistoryArgs(*there.history.columns)
    found = traceback(history, chosen.to(DEVICE), in_slots.lengths, n_best, beams.length_penalty)
    got = make_hypotheses(*(x.cpu().numpy() for x in found), settings.length_penalty)
    assert {len(some) for some in want} == {n_best}
    for some, expected in zip(got, want, strict=True):
        assert [(each.ids, each.finished) for each in some] == [(each.ids, each.finished) for each in expected]
        for each, other in zip(some, expected, strict=True):
            assert each.token_log_probs == pytest.approx(other.token_log_probs)
            assert each.score == pytest.approx(other.score)
