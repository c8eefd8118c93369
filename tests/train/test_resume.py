"""Exact resume, as a user meets it: a process that is killed at any moment."""

import pytest

from tests.train import resume


@pytest.mark.slow
def test_ten_runs_that_were_killed_end_as_one_that_was_not():
    resume.main(times=10, seed=3)
