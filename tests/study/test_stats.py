"""Results as plain values."""

import json
from dataclasses import dataclass

import torch

from regard.study.stats import plain


@dataclass(frozen=True)
class Inner:
    rows: torch.Tensor


@dataclass(frozen=True)
class Outer:
    inner: Inner
    pair: tuple[int, float]
    text: str


def test_everything_becomes_json():
    value = Outer(Inner(torch.tensor([[1.0, 2.0], [3.0, float("nan")]])), (1, float("inf")), "介绍")
    expected = {"inner": {"rows": [[1.0, 2.0], [3.0, None]]}, "pair": [1, None], "text": "介绍"}
    assert plain(value) == expected
    assert json.loads(json.dumps(plain({1: value}), allow_nan=False)) == {"1": expected}
