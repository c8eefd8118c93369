"""The same sources for other processors: what this one can do without must compute the same."""

import platform

import pytest
import torch
from torch.testing import assert_close

from regard.engine.native import NativeDecoder, NativeEngine
from regard.engine.pack import from_transformer
from regard.native import Library, compiled
from tests.engine.test_native import Logits, made, run

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
    exact, near = (
        run(Logits(NativeEngine(NativeDecoder(from_transformer(model), precision, library), lambda: model, ())))
        for precision in ("float32", "int8")
    )
    assert_close(exact, expected, rtol=1e-4, atol=1e-4)
    assert float((near - expected).abs().mean()) < 0.05 * float(expected.std())
    assert not torch.equal(near, expected)
