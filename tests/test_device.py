"""Devices: `auto` takes a GPU if there is one, and what is missing or unknown is refused."""

import subprocess
import sys

import pytest
import torch

from regard.device import find_device


@pytest.mark.parametrize(("there", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_the_gpu_if_there_is_one(monkeypatch, there, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    assert find_device("auto") == expected
    assert find_device("cpu") == "cpu"


def test_a_gpu_may_be_numbered(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [find_device(name) for name in ("cuda", "cuda:1")] == ["cuda", "cuda:1"]


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_a_missing_gpu_is_refused(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        ValueError, match=f"device '{name}' needs a CUDA device, and there is none here: use cpu or auto"
    ):
        find_device(name)


@pytest.mark.parametrize("name", ["tpu", "cuda:", "cuda:one", "cpu:0", "auto:1", ""])
def test_an_unknown_device_is_refused(name):
    with pytest.raises(ValueError, match=f"unknown device '{name}': .*valid are auto, cpu, cuda, cuda:N"):
        find_device(name)


def test_a_cpu_is_found_without_pytorch():
    code = "import sys; from regard.device import find_device; find_device('cpu'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
