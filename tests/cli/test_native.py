"""The commands that tell which compiled library runs models, and compile one."""

import json
import subprocess
import sys

import pytest

from regard.cli.native import report_system
from regard.native import Library
from regard.native.libraries import prebuilt

BUILT = list(prebuilt())
if not BUILT:
    pytest.skip("no libraries were built: make lib", allow_module_level=True)


def regard(*arguments, code=0):
    done = subprocess.run([sys.executable, "-m", "regard", *arguments], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("REGARD_NATIVE", raising=False)


def test_the_system_is_told_as_a_table_and_as_json(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = json.loads(regard("info", "--system", "--json").stdout)
    assert found["engine"] == "C++" and found["instructions"] == found["processor"][-1] and found["threads"] == 3
    assert found["built"] == BUILT and found["note"] == "the best that this processor has"
    told = regard("info", "--system").stdout
    assert "C++" in told and found["instructions"] in told
    assert regard("native").stdout == told


def test_why_not_a_faster_one_is_told(monkeypatch):
    best = report_system().instructions
    if best != BUILT[0]:
        monkeypatch.setenv("REGARD_NATIVE", BUILT[0])
        assert report_system().note == f"REGARD_NATIVE is {BUILT[0]}, and {best} would be faster"
    monkeypatch.setenv("REGARD_NATIVE", "0")
    off = report_system()
    assert (off.engine, off.instructions) == ("PyTorch", None) and off.note == "REGARD_NATIVE is 0: unset it"
    monkeypatch.delenv("REGARD_NATIVE")
    least = {BUILT[0]: prebuilt()[BUILT[0]]}
    monkeypatch.setattr(Library, "best_level", lambda self: 1)
    for module in ("regard.native", "regard.cli.native"):
        monkeypatch.setattr(f"{module}.prebuilt", lambda *_: least)
    assert "of which there is no library: regard native --build compiles one" in report_system().note
    for module in ("regard.native", "regard.cli.native"):
        monkeypatch.setattr(f"{module}.prebuilt", lambda *_: {})
    assert "no library was built for this machine" in report_system().note


@pytest.mark.slow
def test_a_library_of_this_machine_is_compiled_on_request(tmp_path):
    done = regard("native", "--build", "--json")
    (made,) = (tmp_path / "regard").iterdir()
    assert f"built {made}" in "".join(done.stderr.splitlines())
    found = json.loads(done.stdout)
    assert (found["instructions"], found["library"]) == ("native", str(made))


def test_a_build_that_fails_says_why(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert "no library could be built: no C++ compiler was found" in regard("native", "--build", code=2).stderr


def test_info_is_of_a_model_or_of_the_system():
    assert "info is of one model or of the --system, got neither" in regard("info", code=2).stderr
    assert "got zh-en with --system" in regard("info", "zh-en", "--system", code=2).stderr
