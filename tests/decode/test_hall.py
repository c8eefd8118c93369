"""Sentences that come while others are written: they begin at once, end when they are over, and find the same."""

import pytest
import torch

from regard.batch import EOS
from regard.decode import hall
from regard.decode.conveyor import CHUNK, LEAST_SOURCE, Conveyor, search_all
from regard.decode.hall import Hall
from regard.model.slotted import SlottedTransformer
from tests.decode.models import SOURCES, make_model, same, settings

LONG, SHORT = [4, 5, 6, 4] * 7, [5, 6]


def make_slotted(seed=1, endless=False):
    """Makes a model with slots; an endless one writes each sentence to its limit."""
    model = SlottedTransformer(make_model(seed=seed).requires_grad_(False))
    model.least = EOS + 1 if endless else model.least
    return model


def as_long(**changes):
    """Gives settings for targets as long as their sources."""
    return settings(**({"beam": 2, "max_ratio": 1.0, "max_extra": 0} | changes))


def alone(model, ids, how):
    ((_, found),) = search_all(model, [ids], how)
    return found


def turns(there, most=100):
    """Takes turns until nothing is left, and gives what was over after each."""
    told = []
    while len(there):
        told.append(there.turn())
        assert len(told) < most, "it does not end"
    return told


def found_in(told):
    return {number: found for some in told for number, found in some}


def test_a_sentence_begins_while_another_is_written_and_ends_before_it():
    model, how = make_slotted(endless=True), as_long()
    there = Hall(model)
    first = there.add(LONG, how)
    assert there.turn() == [] and there.n_begun == 1
    second = there.add(SHORT, how)
    (over,) = there.turn()
    assert over[0] == second and there.n_begun == 1, "three tokens fit into one turn"
    told = turns(there)
    assert 2 + len(told) == -(-(len(LONG) + 1) // CHUNK), "the first one did not wait for the second"
    same([over[1], found_in(told)[first]], [alone(model, SHORT, how), alone(model, LONG, how)])


@pytest.mark.parametrize("changes", [{"method": "greedy"}, {"beam": 3, "n_best": 3}, {"beam": 5, "limit": 9}], ids=str)
@pytest.mark.parametrize("slots", [1, 2, 64])
def test_what_is_found_does_not_depend_on_who_comes_when(slots, changes):
    model, how = make_slotted(), settings(batch_tokens=slots * LEAST_SOURCE, **changes)
    many = [*SOURCES, LONG, [5] * 40, *SOURCES]
    want = [alone(model, ids, how) for ids in many]
    for at_once in (1, 3, len(many)):
        there, told = Hall(model), []
        for begin in range(0, len(many), at_once):
            numbers = [there.add(ids, how) for ids in many[begin : begin + at_once]]
            assert numbers == list(range(begin, begin + len(numbers)))
            told.append(there.turn())
        found = found_in(told + turns(there))
        same([found[i] for i in range(len(many))], want)


def test_different_settings_take_turns():
    model = make_slotted(endless=True)
    hows = [as_long(), as_long(beam=3, n_best=2), as_long(method="greedy"), as_long(length_penalty=0.0)]
    there = Hall(model)
    numbers = [there.add(LONG, how) for how in hows]
    told = turns(there)
    assert [len(some) for some in told[:-1]] == [0] * (len(told) - 1), "all go on side by side"
    found = found_in(told)
    same([found[number] for number in numbers], [alone(model, LONG, how) for how in hows])


def test_one_alone_has_one_slot_and_later_ones_have_many(monkeypatch):
    sizes, make = [], Conveyor.__init__
    monkeypatch.setattr(
        Conveyor,
        "__init__",
        lambda self, model, B, S, T, how: (sizes.append(B), make(self, model, B, S, T, how))[1],
    )
    there, how = Hall(make_slotted(endless=True)), as_long(batch_tokens=4 * LEAST_SOURCE)
    there.add(LONG, how)
    there.turn()
    assert sizes == [1]
    for _ in range(5):
        there.add(LONG, how)
    there.turn()
    assert sizes == [1, 4] and there.n_begun == 5, "the sixth waits for a slot"
    turns(there)
    there.add(SHORT, how)
    turns(there)
    assert sizes == [1, 4], "slots are kept"


def test_who_is_given_up_makes_room_wherever_it_was():
    model, how = make_slotted(endless=True), as_long(batch_tokens=2 * LEAST_SOURCE)
    there = Hall(model)
    numbers = [there.add(ids, how) for ids in (LONG, LONG[1:], LONG[2:], SHORT)]
    there.turn()
    assert there.n_begun == 2 and len(there) == 4
    for given_up in (numbers[0], numbers[2]):  # one in a slot, one that waits
        there.give_up(given_up)
    assert there.n_begun == 1 and len(there) == 2
    (line,) = there._lines.values()
    assert [slots.beams.over.tolist() for slots in line.conveyors.values()] == [[True, False]]
    (over,) = there.turn()
    assert over[0] == numbers[3], "it began in the slot that became free"
    found = found_in(turns(there))
    assert list(found) == [numbers[1]]
    same([found[numbers[1]], over[1]], [alone(model, LONG[1:], how), alone(model, SHORT, how)])


def test_a_line_that_fails_harms_no_other(monkeypatch):
    model, (good, bad) = make_slotted(), (as_long(), as_long(beam=3))
    there = Hall(model)
    begin, broken = Conveyor.begin, True

    def breaks(self, sentences, ids):
        if broken and self.settings == bad:
            raise RuntimeError("out of memory")
        begin(self, sentences, ids)

    monkeypatch.setattr(Conveyor, "begin", breaks)
    numbers = [there.add(ids, how) for ids in (LONG, SHORT) for how in (good, bad)]
    found = found_in(turns(there))
    assert [str(found[number]) for number in numbers[1::2]] == ["out of memory"] * 2
    same([found[number] for number in numbers[::2]], [alone(model, LONG, good), alone(model, SHORT, good)])
    broken = False
    again = there.add(LONG, bad)
    same([found_in(turns(there))[again]], [alone(model, LONG, bad)])


def test_few_lines_have_slots_and_none_is_passed_over_for_ever(monkeypatch):
    monkeypatch.setattr(hall, "LINES", 2)
    model = make_slotted(endless=True)
    hows = [as_long(beam=beam, batch_tokens=2 * LEAST_SOURCE) for beam in (1, 2, 3)]
    there = Hall(model)
    numbers = [there.add(LONG, how) for how in hows]
    told = [there.turn()]
    for _ in range(30):  # two lines in which somebody always waits
        for how in hows[:2]:
            there.add(LONG, how)
        told.append(there.turn())
        assert len([line for line in there._lines.values() if line.conveyors]) <= 2
    found = found_in(told)
    assert set(numbers) <= set(found)
    same([found[number] for number in numbers], [alone(model, LONG, how) for how in hows])
    found |= found_in(turns(there, most=1000))
    assert len(found) == 3 + 2 * 30


def test_lines_that_nobody_asks_for_are_forgotten(monkeypatch):
    monkeypatch.setattr(hall, "LINES", 2)
    there = Hall(make_slotted())
    for beam in (1, 2, 1, 3):
        there.add(SHORT, as_long(beam=beam))
        turns(there)
    assert [how.beam for _, how in there._lines] == [1, 3]


def test_wrong_settings_are_refused_before_anything_waits():
    there = Hall(make_slotted())
    with pytest.raises(ValueError, match="n_best must lie between 1 and beam, got 3 and 2"):
        there.add(SHORT, settings(beam=2, n_best=3))
    assert len(there) == 0 and there.turn() == []


def test_dropout_rests():
    model = SlottedTransformer(make_model(dropout=0.5).requires_grad_(False)).train()
    there, how = Hall(model), as_long()
    numbers = [there.add(LONG, how) for _ in range(3)]
    found = found_in(turns(there))
    same([found[number] for number in numbers], [alone(model, LONG, how)] * 3)


@pytest.mark.gpu
def test_on_a_gpu_later_ones_find_what_they_find_alone():
    from regard.model.swift import swift
    from tests.decode.test_conveyor import TestOnGPU

    makers = TestOnGPU()
    model, sources = swift(makers.model(torch.float32).cuda()), makers.sources(60)
    assert isinstance(model, SlottedTransformer)
    there, told = Hall(model), []
    hows = [settings(beam=beam, limit=20) for beam in (2, 5)]
    for i, ids in enumerate(sources):
        there.add(ids, hows[i % 2])
        told.append(there.turn())
    found = found_in(told + turns(there))
    for i, ids in enumerate(sources):
        torch.testing.assert_close(found[i][0].score, alone(model, ids, hows[i % 2])[0].score, rtol=1e-4, atol=1e-4)
