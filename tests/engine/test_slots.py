"""Search in slots: the same hypotheses as batch by batch, whatever stands beside a sentence and whenever it begins.

Sentences that come while others are written: they begin at once, end when they are over, and find the same.
"""

import pytest
import torch

from regard.engine import cuda, select_engine, slots
from regard.engine import slot_decoder as plain
from regard.engine.cuda import CudaEngine
from regard.engine.slots import CHUNK, MIN_SOURCE, SlotPool, round_up
from regard.padding import EOS
from tests.search.models import SOURCES, find, make_model, same, settings

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
    found = dict(CudaEngine(model).search(sources, settings(batch_tokens=batch_tokens, **changes)))
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


@pytest.mark.parametrize("n_slots", [1, 2, 4])
def test_slots_are_filled_anew_as_they_become_free(n_slots, monkeypatch):
    model = make_model(seed=1).requires_grad_(False)
    began = []
    begin = SlotPool.begin
    monkeypatch.setattr(
        SlotPool, "begin", lambda self, which, ids: (began.append(list(which)), begin(self, which, ids))
    )
    many = SOURCES * 3
    same(in_slots(model, many, batch_tokens=n_slots * MIN_SOURCE, beam=3), find(model, many, beam=3))
    assert len(began) > 1 and max(map(len, began)) <= n_slots
    assert sorted(i for some in began for i in some) == list(range(len(many)))


def test_long_and_short_sources_have_rooms_of_their_own(monkeypatch):
    sizes = []
    make = SlotPool.__init__
    monkeypatch.setattr(
        SlotPool,
        "__init__",
        lambda self, model, B, S, T, how: (sizes.append((B, S)), make(self, model, B, S, T, how))[1],
    )
    model = make_model(seed=2).requires_grad_(False)
    sources = [[4, 5, 6] * 15, [5], [6, 4], [4] * 31, [5] * 32]
    same(in_slots(model, sources, beam=2), find(model, sources, beam=2))
    assert sizes == [(2, 64), (4, 32)]


def test_a_search_that_was_given_up_leaves_nothing_behind():
    model = CudaEngine(make_model(seed=3).requires_grad_(False))
    how = settings(beam=2, batch_tokens=64)
    next(model.search(SOURCES, how))
    found = dict(model.search(SOURCES, how))
    same([found[i] for i in range(len(SOURCES))], find(model.model, SOURCES, beam=2))


def test_no_end_before_its_time():
    """A benchmark keeps EOS out: then all are written to their limits."""
    model = CudaEngine(make_model().requires_grad_(False))
    model.slot_decoder.min_token = EOS + 1
    found = dict(model.search(SOURCES, settings(beam=2, limit=4)))
    assert all(len(some[0].ids) == 4 and not some[0].finished for some in found.values())


def test_wrong_settings_are_refused():
    model = CudaEngine(make_model().requires_grad_(False))
    with pytest.raises(ValueError, match="n_best must lie between 1 and beam, got 3 and 2"):
        list(model.search(SOURCES, settings(beam=2, n_best=3)))
    with pytest.raises(ValueError, match="greedy search finds one hypothesis, got n_best 2"):
        list(model.search(SOURCES, settings(method="greedy", n_best=2)))


def test_nothing_to_search():
    assert list(CudaEngine(make_model().requires_grad_(False)).search([], settings())) == []


@pytest.mark.parametrize(("n", "expected"), [(1, 8), (8, 8), (9, 16), (16, 16), (17, 32)])
def test_rooms_are_powers_of_two(n, expected):
    assert round_up(n, 8) == expected


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
        fast = select_engine(model.cuda())
        assert isinstance(fast, CudaEngine)
        for batch_tokens in (512, 4096):
            found = dict(fast.search(sources, settings(**changes, limit=20, batch_tokens=batch_tokens)))
            equal = [found[i][0].ids == want[i][0].ids for i in range(len(sources))]
            assert sum(equal) >= len(equal) - 1  # a near tie may turn
            for i, alike in enumerate(equal):
                torch.testing.assert_close(found[i][0].score, want[i][0].score, rtol=1e-4, atol=1e-4)
                if alike:
                    logs = found[i][0].token_log_probs, want[i][0].token_log_probs
                    torch.testing.assert_close(*map(torch.tensor, logs), rtol=1e-3, atol=1e-3)

    def test_a_sentence_alone_is_read_by_a_graph_of_its_own(self, monkeypatch):
        monkeypatch.setattr(slots, "CAPTURE_AFTER", 1)
        model, sources = self.model(torch.float32), self.sources(4)
        want = find(model, sources, beam=3, limit=20)
        fast = select_engine(model.cuda())
        for source, expected in zip(sources * 2, want * 2, strict=True):
            ((_, found),) = fast.search([source], settings(beam=3, limit=20))
            torch.testing.assert_close(found[0].score, expected[0].score, rtol=1e-4, atol=1e-4)

    def test_bfloat16_scores_are_near(self):
        model, sources = self.model(torch.float32), self.sources(20)
        want = find(model, sources, beam=3, limit=20)
        found = dict(select_engine(model.to("cuda", torch.bfloat16)).search(sources, settings(beam=3, limit=20)))
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
        want = plain.self_attention(qkv, memory, ancestors, ages, H)
        torch.testing.assert_close(plain.self_attention(*there, H).cpu(), want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(there[1].cpu(), memory)
        seen, lengths = torch.randn(B, S, 2, D), torch.tensor([0, 1, S], dtype=torch.int32)
        args = (qkv[:, :D].contiguous(), seen, lengths)
        want = plain.cross_attention(*args, H)
        torch.testing.assert_close(
            plain.cross_attention(*[x.cuda() for x in args], H).cpu(), want, rtol=1e-4, atol=1e-5
        )
        logits = torch.randn(7, 5001) * 3
        want, got = plain.best_tokens(logits.clone(), 6, EOS), plain.best_tokens(logits.cuda(), 6, EOS)
        assert torch.equal(got[1].cpu(), want[1])
        torch.testing.assert_close(got[0].cpu(), want[0], rtol=1e-5, atol=1e-5)


LONG, SHORT = [4, 5, 6, 4] * 7, [5, 6]


def make_slotted(seed=1, endless=False):
    """Makes a model with slots; an endless one writes each sentence to its limit."""
    model = CudaEngine(make_model(seed=seed).requires_grad_(False))
    model.slot_decoder.min_token = EOS + 1 if endless else EOS
    return model


def as_long(**changes):
    """Gives settings for targets as long as their sources."""
    return settings(**({"beam": 2, "max_ratio": 1.0, "max_extra": 0} | changes))


def alone(model, ids, how):
    ((_, found),) = model.search([ids], how)
    return found


def turns(there, most=100):
    """Takes turns until nothing is left, and gives what was over after each."""
    told = []
    while len(there):
        told.append(there.step())
        assert len(told) < most, "it does not end"
    return told


def found_in(told):
    return {number: found for some in told for number, found in some}


def test_a_sentence_begins_while_another_is_written_and_ends_before_it():
    model, how = make_slotted(endless=True), as_long()
    there = model.scheduler()
    first = there.add(LONG, how)
    assert there.step() == [] and there.n_running == 1
    second = there.add(SHORT, how)
    (over,) = there.step()
    assert over[0] == second and there.n_running == 1, "three tokens fit into one turn"
    told = turns(there)
    assert 2 + len(told) == -(-(len(LONG) + 1) // CHUNK), "the first one did not wait for the second"
    same([over[1], found_in(told)[first]], [alone(model, SHORT, how), alone(model, LONG, how)])


@pytest.mark.parametrize("changes", [{"method": "greedy"}, {"beam": 3, "n_best": 3}, {"beam": 5, "limit": 9}], ids=str)
@pytest.mark.parametrize("n_slots", [1, 2, 64])
def test_what_is_found_does_not_depend_on_who_comes_when(n_slots, changes):
    model, how = make_slotted(), settings(batch_tokens=n_slots * MIN_SOURCE, **changes)
    many = [*SOURCES, LONG, [5] * 40, *SOURCES]
    want = [alone(model, ids, how) for ids in many]
    for at_once in (1, 3, len(many)):
        there, told = model.scheduler(), []
        for begin in range(0, len(many), at_once):
            numbers = [there.add(ids, how) for ids in many[begin : begin + at_once]]
            assert numbers == list(range(begin, begin + len(numbers)))
            told.append(there.step())
        found = found_in(told + turns(there))
        same([found[i] for i in range(len(many))], want)


def test_different_settings_take_turns():
    model = make_slotted(endless=True)
    hows = [as_long(), as_long(beam=3, n_best=2), as_long(method="greedy"), as_long(length_penalty=0.0)]
    there = model.scheduler()
    numbers = [there.add(LONG, how) for how in hows]
    told = turns(there)
    assert [len(some) for some in told[:-1]] == [0] * (len(told) - 1), "all go on side by side"
    found = found_in(told)
    same([found[number] for number in numbers], [alone(model, LONG, how) for how in hows])


def test_one_alone_has_one_slot_and_later_ones_have_many(monkeypatch):
    sizes, make = [], SlotPool.__init__
    monkeypatch.setattr(
        SlotPool,
        "__init__",
        lambda self, model, B, S, T, how: (sizes.append(B), make(self, model, B, S, T, how))[1],
    )
    there, how = make_slotted(endless=True).scheduler(), as_long(batch_tokens=4 * MIN_SOURCE)
    there.add(LONG, how)
    there.step()
    assert sizes == [1]
    for _ in range(5):
        there.add(LONG, how)
    there.step()
    assert sizes == [1, 4] and there.n_running == 5, "the sixth waits for a slot"
    turns(there)
    there.add(SHORT, how)
    turns(there)
    assert sizes == [1, 4], "slots are kept"


def test_who_is_given_up_makes_room_wherever_it_was():
    model, how = make_slotted(endless=True), as_long(batch_tokens=2 * MIN_SOURCE)
    there = model.scheduler()
    numbers = [there.add(ids, how) for ids in (LONG, LONG[1:], LONG[2:], SHORT)]
    there.step()
    assert there.n_running == 2 and len(there) == 4
    for given_up in (numbers[0], numbers[2]):  # one in a slot, one that waits
        there.cancel(given_up)
    assert there.n_running == 1 and len(there) == 2
    (bucket,) = there._buckets.values()
    assert [pool.beams.final.tolist() for pool in bucket.pools.values()] == [[True, False]]
    (over,) = there.step()
    assert over[0] == numbers[3], "it began in the slot that became free"
    found = found_in(turns(there))
    assert list(found) == [numbers[1]]
    same([found[numbers[1]], over[1]], [alone(model, LONG[1:], how), alone(model, SHORT, how)])


def test_a_line_that_fails_harms_no_other(monkeypatch):
    model, (good, bad) = make_slotted(), (as_long(), as_long(beam=3))
    there = model.scheduler()
    begin, broken = SlotPool.begin, True

    def breaks(self, sentences, ids):
        if broken and self.settings == bad:
            raise RuntimeError("out of memory")
        begin(self, sentences, ids)

    monkeypatch.setattr(SlotPool, "begin", breaks)
    numbers = [there.add(ids, how) for ids in (LONG, SHORT) for how in (good, bad)]
    found = found_in(turns(there))
    assert [str(found[number]) for number in numbers[1::2]] == ["out of memory"] * 2
    same([found[number] for number in numbers[::2]], [alone(model, LONG, good), alone(model, SHORT, good)])
    broken = False
    again = there.add(LONG, bad)
    same([found_in(turns(there))[again]], [alone(model, LONG, bad)])


def test_few_lines_have_slots_and_none_is_passed_over_for_ever(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_BUCKETS", 2)
    model = make_slotted(endless=True)
    hows = [as_long(beam=beam, batch_tokens=2 * MIN_SOURCE) for beam in (1, 2, 3)]
    there = model.scheduler()
    numbers = [there.add(LONG, how) for how in hows]
    told = [there.step()]
    for _ in range(30):  # two lines in which somebody always waits
        for how in hows[:2]:
            there.add(LONG, how)
        told.append(there.step())
        assert len([bucket for bucket in there._buckets.values() if bucket.pools]) <= 2
    found = found_in(told)
    assert set(numbers) <= set(found)
    same([found[number] for number in numbers], [alone(model, LONG, how) for how in hows])
    found |= found_in(turns(there, most=1000))
    assert len(found) == 3 + 2 * 30


def test_lines_that_nobody_asks_for_are_forgotten(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_BUCKETS", 2)
    there = make_slotted().scheduler()
    for beam in (1, 2, 1, 3):
        there.add(SHORT, as_long(beam=beam))
        turns(there)
    assert [how.beam for _, how in there._buckets] == [1, 3]


def test_wrong_settings_are_refused_before_anything_waits():
    there = make_slotted().scheduler()
    with pytest.raises(ValueError, match="n_best must lie between 1 and beam, got 3 and 2"):
        there.add(SHORT, settings(beam=2, n_best=3))
    assert len(there) == 0 and there.step() == []


def test_dropout_rests():
    model = CudaEngine(make_model(dropout=0.5).requires_grad_(False).train())
    there, how = model.scheduler(), as_long()
    numbers = [there.add(LONG, how) for _ in range(3)]
    found = found_in(turns(there))
    same([found[number] for number in numbers], [alone(model, LONG, how)] * 3)


@pytest.mark.gpu
def test_on_a_gpu_later_ones_find_what_they_find_alone():

    makers = TestOnGPU()
    model, sources = select_engine(makers.model(torch.float32).cuda()), makers.sources(60)
    assert isinstance(model, CudaEngine)
    there, told = model.scheduler(), []
    hows = [settings(beam=beam, limit=20) for beam in (2, 5)]
    for i, ids in enumerate(sources):
        there.add(ids, hows[i % 2])
        told.append(there.step())
    found = found_in(told + turns(there))
    for i, ids in enumerate(sources):
        torch.testing.assert_close(found[i][0].score, alone(model, ids, hows[i % 2])[0].score, rtol=1e-4, atol=1e-4)
