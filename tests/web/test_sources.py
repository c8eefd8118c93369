"""The page's own tests and type checks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.web.conftest import ROOT

WEB = ROOT / "web"


@pytest.mark.parametrize("task", ["check", "test"])
def test_the_sources_pass(task):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # npm may come by pip
    npm = shutil.which("npm", path=path)
    if npm is None or not (WEB / "node_modules").is_dir():
        pytest.skip("THE PAGE'S OWN TESTS DID NOT RUN: they need Node and npm ci in web/")
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(
        [npm, "run", task], cwd=WEB, env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
