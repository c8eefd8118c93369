"""Folders of models that are broken or meant to harm are refused at once, by name, with little memory."""

import re
import shutil
import signal
import tracemalloc

import pytest

from regard import load
from regard.checkpoint import describe
from tests.checkpoint.hostile import CASES, PARTS, make_folder

# What `regard info` shows without asking for more: it computes with none of these.
SHOWN = {"tokenizer of another size", "learned, max_len as text", "base of a scheme without one"} | {
    name for name in CASES if name.endswith(("base = 0.5", "base = x"))
}
# What is read only where scores are shown.
NOT_LOADED = {name for name in CASES if name.startswith("scores")}
MIB = 1 << 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    home = tmp_path_factory.mktemp("whole")
    return {kind: make_folder(home / kind, kind) for kind in PARTS}


@pytest.fixture(autouse=True)
def in_time():
    """A folder that hangs fails instead: it is the only way in which such a defect shows."""

    def stop(*_):
        raise TimeoutError("this folder was not refused at once")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", PARTS)
def test_whole_folders_are_taken(whole, kind):
    assert load(whole[kind]).settings.beam == describe(whole[kind])["settings"]["decode"]["beam"] == 5


@pytest.mark.parametrize("command", [load, describe])
@pytest.mark.parametrize("name", CASES)
def test_hostile_folders_are_refused_by_name(whole, tmp_path, name, command):
    kind, damage, message = CASES[name]
    folder = shutil.copytree(whole[kind], tmp_path / "model")
    damage(folder)
    if name in (SHOWN if command is describe else NOT_LOADED):
        assert command(folder)
        return
    tracemalloc.start()
    with pytest.raises(ValueError, match=message) as caught:
        command(folder)
    assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    tracemalloc.stop()
    assert re.match(rf"{re.escape(str(folder))}/[\w.]+: ", str(caught.value))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
