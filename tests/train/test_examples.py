"""Learning from numbered examples: a planted rule is found, the best model is kept, the seed decides all."""

import pytest
import torch
from torch import nn

from regard.train.examples import ExampleSettings, train_on_examples

TRUTH = torch.tensor([[2.0, -1.0, 0.5]])


def problem(seed: int = 3):
    x = torch.randn(203, 3, generator=torch.Generator().manual_seed(seed))
    return x, x @ TRUTH.T


def learned(settings: ExampleSettings, judged: list[float] | None = None):
    torch.manual_seed(1)
    model, (x, y) = nn.Linear(3, 1, bias=False), problem()
    outputs = iter(judged or [])
    seen: list[list[int]] = []

    def loss(numbers):
        seen.append(numbers.tolist())
        return nn.functional.mse_loss(model(x[numbers]), y[numbers])

    def judge():
        return next(outputs) if judged else -float(nn.functional.mse_loss(model(x), y))

    weights = []
    lessons = []
    for lesson in train_on_examples(model, len(x), loss, judge, settings):
        lessons.append(lesson)
        weights.append(model.weight.detach().clone())
    return model, lessons, weights, seen


def test_a_planted_rule_is_found():
    model, lessons, _, _ = learned(ExampleSettings(epochs=40, batch=32, lr=0.05, weight_decay=0.0))
    torch.testing.assert_close(model.weight.detach(), TRUTH, atol=1e-3, rtol=0)
    assert lessons[-1].loss < 1e-4 < lessons[0].loss
    assert [lesson.epoch for lesson in lessons] == list(range(40))


def test_every_epoch_sees_each_example_once_in_its_own_order():
    *_, seen = learned(ExampleSettings(epochs=2, batch=50))
    first, second = [[n for some in seen[i : i + 5] for n in some] for i in (0, 5)]
    assert sorted(first) == sorted(second) == list(range(203))
    assert first != second


def test_the_model_judged_best_is_the_one_that_stays():
    model, _, weights, _ = learned(ExampleSettings(epochs=4, lr=0.05), judged=[1.0, 7.0, 7.0, 3.0])
    assert torch.equal(model.weight, weights[1])
    assert not torch.equal(model.weight, weights[3])


def test_the_seed_decides_everything():
    one, other = learned(ExampleSettings(epochs=2))[0], learned(ExampleSettings(epochs=2))[0]
    assert torch.equal(one.weight, other.weight)
    assert not torch.equal(one.weight, learned(ExampleSettings(epochs=2, seed=1))[0].weight)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"epochs": 0}, "got 0, 64"), ({"lr": -2.0}, "got -2.0"), ({"warmup": 1.0}, "got 1.0")],
)
def test_what_cannot_work_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        learned(ExampleSettings(**wrong))
