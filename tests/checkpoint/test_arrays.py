"""Files of arrays: what the package safetensors writes is read, and what it refuses is refused."""

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from regard.checkpoint.arrays import read_file
from regard.extras import importing

ARRAYS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5,
    "bytes": np.array([[-127, 3], [5, 127]], np.int8),
    "half": np.array([1.5, -0.25], np.float16),
    "wide": np.array([2.0**40], np.float64),
    "none": np.zeros((0, 4), np.float32),
    "one": np.array(7, np.int64),
}


def test_what_the_package_writes_is_read(tmp_path):
    save_file(ARRAYS, tmp_path / "file", {"who": "我"})
    arrays, notes = read_file(tmp_path / "file")
    assert notes == {"who": "我"} and arrays.keys() == ARRAYS.keys()
    for name, expected in ARRAYS.items():
        found = arrays[name].numpy()
        assert found.dtype == expected.dtype and found.shape == expected.shape and (found == expected).all()
        assert np.array_equal(np.asarray(arrays[name].numbers()), expected)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HEADERS = {
    "a gap": {"a": entry(), "b": entry(offsets=(12, 20))},
    "an overlap": {"a": entry(), "b": entry(offsets=(4, 12))},
    "not from the beginning": {"a": entry(offsets=(4, 12)), "b": entry(offsets=(12, 20))},
    "too few bytes": {"a": entry(shape=(5,), offsets=(0, 16))},
    "beyond the end": {"a": entry(shape=(6,), offsets=(0, 24))},
    "bytes that nobody has": {"a": entry()},
    "a negative size": {"a": entry(shape=(-5,), offsets=(0, 20))},
    "a size that is no number": {"a": entry(shape=("5",), offsets=(0, 20))},
    "offsets that run backwards": {"a": entry(shape=(0,), offsets=(8, 0)), "b": entry(shape=(5,), offsets=(0, 20))},
    "no offsets": {"a": {"dtype": "F32", "shape": [5]}},
    "a list": [1, 2],
    "notes that are no texts": {"__metadata__": {"a": 5}, "b": entry(shape=(5,), offsets=(0, 20))},
}


@pytest.mark.parametrize("what", HEADERS)
def test_what_the_package_refuses_is_refused(what, tmp_path):
    header, path = json.dumps(HEADERS[what]).encode(), tmp_path / "file"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(20))
    with pytest.raises(SafetensorError), safe_open(path, framework="np"):
        pass
    with pytest.raises(ValueError, match=f"{path}: this is not a complete safetensors file"):
        read_file(path)


@pytest.mark.parametrize("content", [b"", b"12345", b"\xff" * 8, (5).to_bytes(8, "little") + b"{}", b"\0" * 8])
def test_files_that_end_too_soon_are_refused(content, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        read_file(path)


@pytest.mark.parametrize("dtype", ["F32", "F64", "F16", "BF16"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_float32_lacks_are_found_wherever_they_are(dtype, value, tmp_path):
    whole = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "BF16": np.float32}[dtype]
    for n in (3, 1 << 15):
        numbers = np.ones(n, whole)
        numbers[n // 2] = value
        content = (numbers.view(np.uint32) >> 16).astype(np.uint16) if dtype == "BF16" else numbers
        header = json.dumps({"a": entry(dtype, (n,), (0, content.nbytes))}).encode()
        path = tmp_path / f"{n}"
        path.write_bytes(len(header).to_bytes(8, "little") + header + content.tobytes())
        found = read_file(path)[0]["a"].not_finite()
        assert found is not None and (found == value or found != found)


def test_a_translation_on_a_cpu_imports_no_numpy():
    code = "import regard, sys; t = regard.load('zh-en', 'int8'); t.translate('你好。'); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_garbage_is_collected_again_after_an_import():
    code = "import gc, regard; regard.load; print(gc.isenabled()); gc.disable(); regard.Settings; print(gc.isenabled())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\nFalse\n"
    with pytest.raises(ValueError, match="meanwhile"), importing():
        raise ValueError("meanwhile")
