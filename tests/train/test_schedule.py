"""Learning rates: laws, and values computed by hand."""

import math
from itertools import pairwise

import pytest

from regard.config import TrainSettings
from regard.train.schedule import SCHEDULE, check_schedule, learning_rate


def make(name, **changes):
    return TrainSettings(schedule=name, lr=2.0, warmup=10, max_steps=110, **changes)


@pytest.mark.parametrize("name", SCHEDULE)
def test_it_rises_in_a_line_to_the_peak_at_warm_up_and_never_again(name):
    settings = make(name)
    rates = [learning_rate(step, settings) for step in range(1, 111)]
    assert rates[:10] == pytest.approx([0.2 * step for step in range(1, 11)])
    assert max(rates) == rates[9] == 2.0
    assert all(later <= earlier for earlier, later in pairwise(rates[9:]))


def test_inverse_square_root_by_hand():
    assert learning_rate(40, make("inverse_sqrt")) == pytest.approx(1.0)  # four times the warm-up: half
    assert learning_rate(90, make("inverse_sqrt")) == pytest.approx(2 / 3)


def test_cosine_by_hand_and_ends_at_nothing():
    assert learning_rate(60, make("cosine")) == pytest.approx(1.0)
    assert learning_rate(35, make("cosine")) == pytest.approx(1 + math.sqrt(0.5))
    assert learning_rate(110, make("cosine")) == learning_rate(200, make("cosine")) == 0.0


def test_cosine_ends_with_the_minutes_where_they_end_first():
    by_time = make("cosine", max_minutes=2.0)
    assert learning_rate(11, by_time, seconds=60.0) == pytest.approx(1.0)
    assert learning_rate(5, by_time, seconds=60.0) == pytest.approx(1.0)  # warming up
    assert learning_rate(60, by_time, seconds=0.0) == pytest.approx(1.0)
    assert learning_rate(11, by_time, seconds=130.0) == 0.0


def test_constant_stays():
    assert learning_rate(1000, make("constant")) == 2.0


@pytest.mark.parametrize("name", SCHEDULE)
def test_without_warm_up_the_first_step_has_the_whole_rate(name):
    assert learning_rate(1, TrainSettings(schedule=name, lr=2.0, warmup=0, max_steps=10**9)) == pytest.approx(2.0)


def test_what_cannot_be_followed_is_refused():
    with pytest.raises(ValueError, match=r"needs train.max_steps or train.max_minutes, where it ends, got neither"):
        check_schedule(TrainSettings(schedule="cosine"))
    with pytest.raises(ValueError, match="unknown schedule 'cosin': did you mean 'cosine'"):
        check_schedule(TrainSettings(schedule="cosin"))
