"""What holds for every test."""

import pytest
import torch
from hypothesis import settings

# Examples are the same in every run, and a first call that imports something is no failure.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Sizes here are tiny: a second thread only makes each step wait, for seconds where the cores are busy."""
    torch.set_num_threads(1)
