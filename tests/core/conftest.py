"""These tests are run by tests/test_core.py in a process without PyTorch; elsewhere they would prove nothing."""

import sys

import pytest

from regard.cli import main
from regard.extras import is_installed

collect_ignore_glob = ["test_*.py"] if is_installed("torch") else []


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the program with some arguments, and gives what it printed; it must end with this exit code."""

    def run_with(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert ended.value.code in ({0, None} if code == 0 else {code}), printed.err
        return printed

    return run_with
