"""Search in slots: the same hypotheses as batch by batch, whatever stands beside a sentence and whenever it begins."""

import pytest
import torch

from regard.batch import EOS
from regard.decode import conveyor
from regard.decode.conveyor import Conveyor, room, search_all
from regard.model import slotted as plain
from regard.model.slotted import SlottedTransformer
from regard.model.swift import swift
from tests.decode.models import SOURCES, find, make_model, same, settings

SIZES = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 48, "n_heads": 3, "d_ff": 64}
SETTINGS = [
    {"method": "greedy"},
    {"beam": 1},
    {"beam": 2, "limit": 9},
    {"beam": 3, "n_best": 3},
    {"beam": 5, "n_best": 2, "limit": 9},
    {"beam": 4, "length_penalty": 0.0},
    {"beam": 3, "length_penalty": -0.5},
    {"beam": 3, "n_best": 3, "limit": 1},
]


def in_slots(model, sources, batch_tokens=4096, **changes):
    """Searches with the model packed into slots."""
    found = dict(search_all(SlottedTransformer(model), sources, settings(batch_tokens=batch_tokens, **changes)))
    assert sorted(found) == list(range(len(sources)))
    return [found[i] for i in range(len(sources))]


@pytest.mark.parametrize("changes", SETTINGS, ids=str)
@pytest.mark.parametrize(
    "parts", [{}, {"norm_place": "before"}, {"norm": "rms", "activation": "gelu", "d_embedding": 4}], ids=str
)
def test_finds_what_a_search_by_batches_finds(parts, changes):
    for seed in range(3):
        model = make_model(seed=seed, **parts).requires_grad_(False)
        same(in_slots(model, SOURCES, **changes), find(model, SOURCES, **changes))


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_slots_are_filled_anew_as_they_become_free(slots, monkeypatch):
    model = make_model(seed=1).requires_grad_(False)
    began = []
    begin = Conveyor.begin
    monkeypatch.setattr(
        Conveyor, "begin", lambda self, which, ids: (began.append(list(which)), begin(self, which, ids))
    )
    many = SOURCES * 3
    same(in_slots(model, many, batch_tokens=slots * conveyor.LEAST_SOURCE, beam=3), find(model, many, beam=3))
    assert len(began) > 1 and max(map(len, began)) <= slots
    assert sorted(i for some in began for i in some) == list(range(len(many)))


def test_long_and_short_sources_have_rooms_of_their_own(monkeypatch):
    sizes = []
    make = Conveyor.__init__
    monkeypatch.setattr(
        Conveyor,
        "__init__",
        lambda self, model, B, S, T, how: (sizes.append((B, S)), make(self, model, B, S, T, how))[1],
    )
    model = make_model(seed=2).requires_grad_(False)
    sources = [[4, 5, 6] * 15, [5], [6, 4], [4] * 31, [5] * 32]
    same(in_slots(model, sources, beam=2), find(model, sources, beam=2))
    assert sizes == [(2, 64), (4, 32)]


def test_a_search_that_was_given_up_leaves_nothing_behind():
    model = SlottedTransformer(make_model(seed=3).requires_grad_(False))
    how = settings(beam=2, batch_tokens=64)
    next(search_all(model, SOURCES, how))
    found = dict(search_all(model, SOURCES, how))
    same([found[i] for i in range(len(SOURCES))], find(model.plain(), SOURCES, beam=2))


def test_no_end_before_its_time():
    """A benchmark keeps EOS out: then all are written to their limits."""
    model = SlottedTransformer(make_model().requires_grad_(False))
    model.least = EOS + 1
    found = dict(search_all(model, SOURCES, settings(beam=2, limit=4)))
    assert all(len(some[0].ids) == 4 and not some[0].finished for some in found.values())


def test_wrong_settings_are_refused():
    model = SlottedTransformer(make_model().requires_grad_(False))
    with pytest.raises(ValueError, match="n_best must lie between 1 and beam, got 3 and 2"):
        list(search_all(model, SOURCES, settings(beam=2, n_best=3)))
    with pytest.raises(ValueError, match="greedy search finds one hypothesis, got n_best 2"):
        list(search_all(model, SOURCES, settings(method="greedy", n_best=2)))


def test_nothing_to_search():
    assert list(search_all(SlottedTransformer(make_model().requires_grad_(False)), [], settings())) == []


@pytest.mark.parametrize(("n", "expected"), [(1, 8), (8, 8), (9, 16), (16, 16), (17, 32)])
def test_rooms_are_powers_of_two(n, expected):
    assert room(n, 8) == expected


@pytest.mark.gpu
class TestOnGPU:
    """Captured steps and kernels against the definition on the CPU."""

    def model(self, dtype, **parts):
        from regard.build import build_model
        from regard.config import ModelSettings

        torch.manual_seed(0)
        model = build_model(ModelSettings(**SIZES, dropout=0.0, **parts), (3000, 3000)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5 if parameter.dim() == 2 else 1.0)
        return model.requires_grad_(False).to(dtype)

    def sources(self, n):
        drawn = torch.Generator().manual_seed(0)
        lengths = torch.randint(1, 70, (n,), generator=drawn).tolist()
        return [torch.randint(4, 3000, (length,), generator=drawn).tolist() for length in lengths]

    @pytest.mark.parametrize("changes", [{"method": "greedy"}, {"beam": 5, "n_best": 2}, {"beam": 4}], ids=str)
    @pytest.mark.parametrize("parts", [{}, {"norm_place": "before", "norm": "rms"}], ids=str)
    def test_float32_finds_what_the_cpu_finds(self, parts, changes):
        model, sources = self.model(torch.float32, **parts), self.sources(40)
        want = find(model, sources, **changes, limit=20)
        fast = swift(model.cuda())
        assert isinstance(fast, SlottedTransformer)
        for batch_tokens in (512, 4096):
            found = dict(search_all(fast, sources, settings(**changes, limit=20, batch_tokens=batch_tokens)))
            equal = [found[i][0].ids == want[i][0].ids for i in range(len(sources))]
            assert sum(equal) >= len(equal) - 1  # a near tie may turn
            for i, alike in enumerate(equal):
                torch.testing.assert_close(found[i][0].score, want[i][0].score, rtol=1e-4, atol=1e-4)
                if alike:
                    logs = found[i][0].token_log_probs, want[i][0].token_log_probs
                    torch.testing.assert_close(*map(torch.tensor, logs), rtol=1e-3, atol=1e-3)

    def test_a_sentence_alone_is_read_by_a_graph_of_its_own(self, monkeypatch):
        monkeypatch.setattr(conveyor, "OFTEN", 1)
        model, sources = self.model(torch.float32), self.sources(4)
        want = find(model, sources, beam=3, limit=20)
        fast = swift(model.cuda())
        for source, expected in zip(sources * 2, want * 2, strict=True):
            ((_, found),) = search_all(fast, [source], settings(beam=3, limit=20))
            torch.testing.assert_close(found[0].score, expected[0].score, rtol=1e-4, atol=1e-4)

    def test_bfloat16_scores_are_near(self):
        model, sources = self.model(torch.float32), self.sources(20)
        want = find(model, sources, beam=3, limit=20)
        found = dict(search_all(swift(model.to("cuda", torch.bfloat16)), sources, settings(beam=3, limit=20)))
        for i in range(len(sources)):
            torch.testing.assert_close(found[i][0].score, want[i][0].score, rtol=0.05, atol=0.05)

    def test_kernels_agree_with_their_definitions(self):
        torch.manual_seed(0)
        B, N, T, H, D, S = 3, 5, 70, 3, 60, 37
        memory, qkv = torch.randn(2, B, T, N, D), torch.randn(B * N, 3 * D)
        ages = torch.tensor([0, 33, 69], dtype=torch.int32)
        ancestors = torch.randint(0, N, (B, N, T), dtype=torch.int32)
        own = torch.arange(N, dtype=torch.int32)
        ancestors[torch.arange(B)[:, None], own.long(), ages[:, None].long()] = own
        there = [x.cuda() for x in (qkv, memory, ancestors, ages)]
        want = plain.look_back(qkv, memory, ancestors, ages, H)
        torch.testing.assert_close(plain.look_back(*there, H).cpu(), want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(there[1].cpu(), memory)
        seen, lengths = torch.randn(B, S, 2, D), torch.tensor([0, 1, S], dtype=torch.int32)
        args = (qkv[:, :D].contiguous(), *seen.unbind(2), lengths)
        want = plain.look_across(*args, H)
        torch.testing.assert_close(plain.look_across(*[x.cuda() for x in args], H).cpu(), want, rtol=1e-4, atol=1e-5)
        logits = torch.randn(7, 5001) * 3
        want, got = plain.likeliest_tokens(logits.clone(), 6, EOS), plain.likeliest_tokens(logits.cuda(), 6, EOS)
        assert torch.equal(got.tokens.cpu(), want.tokens)
        torch.testing.assert_close(got.gains.cpu(), want.gains, rtol=1e-5, atol=1e-5)
