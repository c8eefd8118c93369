"""Decoders on a GPU: steps are captured, and what they learn is what a CPU learns."""

from dataclasses import replace

import pytest
import torch

import regard
from tests.train.texts import PERIOD, text_settings, write_period
from tests.train.tiny import run_training

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("position", ["rotary", "learned", "alibi"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_gpu_learns_a_text_by_heart_and_writes_it(tmp_path, position, precision):
    text = write_period(tmp_path / "text.txt")
    changes = {"model": {"position": {"name": position}}, "train": {"device": "cuda", "precision": precision}}
    longer = {"train": {"max_steps": 200, "lr": 1e-2, "warmup": 10, "valid_every": 100, "save_every": 100}}
    outcome = run_training(text_settings(text, changes, longer), tmp_path / "run")
    assert outcome.best["loss"] < 0.1
    assert "running steps eagerly" not in (tmp_path / "run" / "log.txt").read_text()
    for where in ("cuda", "cpu"):
        writer = regard.load(tmp_path / "run", device=where)
        greedy = replace(writer.settings, method="greedy", max_extra=50)
        assert "".join(writer.stream(PERIOD[:5], greedy)) == (PERIOD * 3)[5:55]
