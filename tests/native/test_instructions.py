"""The libraries for other processors: what this one can do without must compute the same, and bytes exactly so."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from regard.engine.native import NativeDecoder, NativeEngine
from regard.engine.pack import from_transformer
from regard.native import Library, open_library
from regard.native.build import build_here
from regard.native.libraries import LEVELS, LIBRARIES, prebuilt
from tests.engine.test_native import Logits, made, run

BUILT = prebuilt()
if not BUILT:
    pytest.skip("no libraries were built: make lib", allow_module_level=True)
RUNNABLE = list(LEVELS[platform.machine()])[: Library(next(iter(BUILT.values()))).best_level() + 1]
REFERENCE = RUNNABLE[0]


def logits(model, precision, library):
    """Return the logits of some steps by one library, for several sentences of several hypotheses."""
    engine = NativeEngine(NativeDecoder(from_transformer(model), precision, library), lambda: model, ())
    return run(Logits(engine), n_steps=9)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize(("d_model", "n_heads", "d_ff"), [(66, 2, 130), (15, 3, 33), (256, 4, 517)])
@pytest.mark.parametrize("parts", [{}, {"norm": "rms", "norm_place": "before", "activation": "gelu"}], ids=str)
def test_every_level_computes_the_same(level, d_model, n_heads, d_ff, parts):
    model = made(d_model, n_heads, d_ff, **parts).requires_grad_(False)
    library, least = Library(BUILT[level], level), Library(BUILT[REFERENCE], REFERENCE)
    expected = run(model, n_steps=9)
    assert_close(logits(model, "float32", library), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    assert_close(logits(model, "int8", library), logits(model, "int8", least), rtol=0, atol=0)
    assert not torch.equal(logits(model, "int8", library), logits(model, "float32", library))


@pytest.mark.slow
def test_a_library_of_just_this_machine_computes_the_same(tmp_path):
    model = made(66, 2, 130).requires_grad_(False)
    library, least = Library(build_here(tmp_path)), Library(BUILT[REFERENCE], REFERENCE)
    assert_close(logits(model, "int8", library), logits(model, "int8", least), rtol=0, atol=0)
    assert_close(logits(model, "float32", library), logits(model, "float32", least), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", RUNNABLE)
def test_a_level_can_be_forced(level, monkeypatch):
    monkeypatch.setenv("REGARD_NATIVE", level)
    assert open_library().level == level and open_library().path == BUILT[level]


def test_the_best_level_is_the_default(monkeypatch, tmp_path):
    monkeypatch.delenv("REGARD_NATIVE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert open_library().level == RUNNABLE[-1]


TRANSLATE = """
import regard
texts = ["介绍一下西安", "我昨天在北京买了一本关于音乐的书。", "他是我的朋友。火车几点到？", "5" * 40]
translator = regard.load("zh-en", precision="int8")
for each in translator.translate(texts):
    print(each.text, each.score.hex())
"""


@pytest.mark.parametrize("level", RUNNABLE[1:])
def test_translations_in_int8_are_the_same_to_the_last_bit(level):
    found = []
    for each in (REFERENCE, level):
        environment = {**os.environ, "REGARD_NATIVE": each}
        done = subprocess.run([sys.executable, "-c", TRANSLATE], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert found[0] == found[1] and found[0].count("\n") == 4


CROSS, QEMU = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
PROBE = Path(__file__).parent / "probe.cpp"


@pytest.mark.slow
@pytest.mark.skipif(not CROSS or not QEMU, reason="needs g++-aarch64-linux-gnu and qemu-user")
def test_arm_computes_what_this_machine_does(tmp_path):
    """A program of the same sources prints bits of products, norms and softmaxes: int8 and sums are the same on all."""
    printed = {}
    for name, compiler, flags, run_by in (
        ("here", "g++", ("-march=native",), ()),
        ("least", "g++", (), ()),
        ("neon", CROSS, (), (QEMU, "-L", "/usr/aarch64-linux-gnu")),
        ("dotprod", CROSS, LEVELS["aarch64"]["dotprod"], (QEMU, "-cpu", "max", "-L", "/usr/aarch64-linux-gnu")),
    ):
        program = tmp_path / name
        options = ("-std=c++17", "-O3", "-ffp-contract=off", "-pthread", f"-I{LIBRARIES.parent}")
        subprocess.run([compiler, *options, *flags, str(PROBE), "-o", str(program)], check=True)
        done = subprocess.run([*run_by, str(program)], capture_output=True, text=True, check=True)
        printed[name] = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    for name, lines in printed.items():
        exact = {key for key in lines if not key.startswith("float32_product")}
        assert len(exact) >= 4, name
        assert {key: lines[key] for key in exact} == {key: printed["here"][key] for key in exact}, name
        for key in lines.keys() - exact:
            found, expected = (
                torch.tensor([float.fromhex(x) for x in each[key].split()]) for each in (lines, printed["here"])
            )
            assert_close(found, expected, rtol=1e-5, atol=1e-5)
