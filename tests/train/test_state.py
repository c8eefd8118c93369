"""Means of parameters: over steps, and over checkpoints."""

import numpy as np
import pytest
import torch
from torch import nn

from regard.build import build_model
from regard.checkpoint.weights import Checkpoint, load_model, save_model
from regard.config import Settings, merge, parse_settings, preset
from regard.data.tokenizer import Tokenizer, train_characters
from regard.train.state import Ema, average, average_models
from tests.parts import noise


def test_the_mean_of_models_is_numpys():
    models = [{"a": noise(3, 5, seed=seed).float(), "n": torch.tensor([seed])} for seed in range(4)]
    mean = average(models)
    expected = np.mean([model["a"].double().numpy() for model in models], axis=0).astype(np.float32)
    np.testing.assert_array_equal(mean["a"].numpy(), expected)
    assert mean["n"].tolist() == [3]  # whole numbers cannot be averaged


def test_models_of_other_tensors_are_refused():
    with pytest.raises(ValueError, match=r"must have the same tensors, got differing ones: \['b'\]"):
        average([{"a": torch.zeros(1)}, {"a": torch.zeros(1), "b": torch.zeros(1)}])
    with pytest.raises(ValueError, match="averaging needs 1 or more models, got 0"):
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


def test_shares_weigh_the_models():
    models = [{"a": noise(3, 5, seed=seed)} for seed in range(3)]
    mean = average(models, [0.2, 0.5, 0.3])["a"]
    torch.testing.assert_close(mean, 0.2 * models[0]["a"] + 0.5 * models[1]["a"] + 0.3 * models[2]["a"])


class TestMeanOfModels:
    def saved(self, folder, seed=0, pieces="one two three four", **changes):
        """Save a tiny model of its own weights."""
        torch.manual_seed(seed)
        settings = parse_settings(Settings, merge(preset("tiny"), {"model": changes}))
        tokenizer = Tokenizer((train_characters([pieces], 30, byte_fallback=False),))
        sizes = tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt")
        save_model(folder, Checkpoint(build_model(settings.model, sizes), tokenizer, settings), {})
        return folder

    def test_every_parameter_is_the_mean(self, tmp_path):
        places = [self.saved(tmp_path / str(seed), seed) for seed in range(2)]
        average_models(places, [0.25, 0.75], tmp_path / "mean")
        a, b, mean = (load_model(place).model.state_dict() for place in (*places, tmp_path / "mean"))
        for name, value in mean.items():
            torch.testing.assert_close(value, 0.25 * a[name] + 0.75 * b[name])

    def test_what_has_no_mean_is_refused(self, tmp_path):
        one, other = self.saved(tmp_path / "a"), self.saved(tmp_path / "b", pieces="five six seven eight nine")
        with pytest.raises(ValueError, match=r"one share for each of 2 models, with a sum of 1, got \[0.5, 0.6\]"):
            average_models([one, one], [0.5, 0.6], tmp_path / "mean")
        with pytest.raises(ValueError, match="must have one tokenizer, got another than that of"):
            average_models([one, other], [0.5, 0.5], tmp_path / "mean")
        with pytest.raises(ValueError, match="the folder exists already"):
            average_models([one, one], [0.5, 0.5], other)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"n_heads": 2}, "got model.n_heads 2 instead of 4"),  # the tensors have the same shapes
            ({"d_ff": 96}, "got model.d_ff 96 instead of 512"),
            ({"position": {"name": "rotary"}}, "got model.position {'name': 'rotary', 'options': {}} instead of"),
        ],
    )
    def test_models_of_other_settings_are_refused(self, tmp_path, changes, said):
        one, other = self.saved(tmp_path / "a"), self.saved(tmp_path / "b", **changes)
        with pytest.raises(ValueError, match=f"{other}: models to average must have the same settings, {said}"):
            average_models([one, other], [0.5, 0.5], tmp_path / "mean")
        assert not (tmp_path / "mean").exists()

    def test_dropout_does_not_matter(self, tmp_path):
        one, other = self.saved(tmp_path / "a"), self.saved(tmp_path / "b", dropout=0.3)
        average_models([one, other], [0.5, 0.5], tmp_path / "mean")
        assert load_model(tmp_path / "mean").settings.model.dropout == 0.1
