"""The same sources for other processors: what this one can do without must compute the same."""

import platform

import pytest
import torch
from torch.testing import assert_close

from regard.engine.cpu import NativeTransformer
from regard.native import Library, compiled
from tests.engine.test_cpu import made, run

FLAGS = {
    "128 bits": ("-march=x86-64",),
    "256 bits, no fused sums": ("-march=x86-64", "-mavx"),
    "256 bits": ("-march=x86-64", "-mavx2", "-mfma"),
    "this one, without OpenMP": ("-march=native",),
    "bytes in two instructions": ("-march=native", "-mno-avx512vnni"),
}


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="these are flags for x86-64")
@pytest.mark.parametrize("name", FLAGS)
def test_other_instructions_compute_the_same(name, tmp_path):
    library = Library(compiled(tmp_path, [FLAGS[name]]))
    model = made(66, 2, 130).requires_grad_(False)
    expected = run(model)
    assert_close(run(NativeTransformer(model, "float32", library)), expected, rtol=1e-4, atol=1e-4)
    near = run(NativeTransformer(model, "int8", library))
    assert float((near - expected).abs().mean()) < 0.05 * float(expected.std())
    assert not torch.equal(near, expected)
