"""Means of parameters: over steps, and over checkpoints."""

import numpy as np
import pytest
import torch
from torch import nn

from regard.train.average import average
from regard.train.state import Ema
from tests.parts import noise


def test_the_mean_of_models_is_numpys():
    models = [{"a": noise(3, 5, seed=seed).float(), "n": torch.tensor([seed])} for seed in range(4)]
    mean = average(models)
    expected = np.mean([model["a"].double().numpy() for model in models], axis=0).astype(np.float32)
    np.testing.assert_array_equal(mean["a"].numpy(), expected)
    assert mean["n"].tolist() == [3]  # whole numbers cannot be averaged


def test_models_of_other_tensors_are_refused():
    with pytest.raises(ValueError, match=r"must have the same tensors, got others: \['b'\]"):
        average([{"a": torch.zeros(1)}, {"a": torch.zeros(1), "b": torch.zeros(1)}])
    with pytest.raises(ValueError, match="1 or more models to average, got 0"):
        average([])


def test_a_running_mean_has_its_closed_form():
    model = nn.Linear(3, 2).double()
    first = model.weight.detach().clone()
    ema = Ema(model, 0.6)
    expected, steps = first.clone(), 30
    weights = [noise(2, 3, seed=step) for step in range(1, steps + 1)]
    for step, weight in enumerate(weights, start=1):
        model.weight.data.copy_(weight)
        ema.update(step)
    # Each step's share is its own 1 − d times all later d, where d grows to 0.6 in the first steps.
    decays = [min(0.6, (1 + step) / (10 + step)) for step in range(1, steps + 1)]
    expected = first * np.prod(decays)
    for i, weight in enumerate(weights):
        expected += weight * (1 - decays[i]) * np.prod(decays[i + 1 :])
    torch.testing.assert_close(ema.mean["weight"], expected)
    torch.testing.assert_close(model.weight.data, weights[-1], rtol=0, atol=0)
