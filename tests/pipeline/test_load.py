"""From a folder to a translator: where it runs and in which precision."""

import pickle
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import regard
from regard.checkpoint.weights import load_model
from regard.engine import select_engine
from regard.engine.native import NativeEngine
from regard.engine.plain import PlainEngine
from regard.pipeline import choose_device
from regard.pipeline.translator import Translator
from tests.train.tiny import trained_once


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return trained_once(tmp_path_factory)


@pytest.mark.parametrize("device", ["cpu", "auto"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_model_is_loaded_where_it_is_told(trained, device, precision):
    if device == "auto" and torch.cuda.is_available():
        pytest.skip("auto is the GPU here")
    translator = regard.load(trained, precision, device)
    assert next(translator.model.parameters()).device.type == "cpu"
    assert translator.translate("a b c")[0].text


def test_bundled_models_run_in_8_bits_on_a_cpu_where_nobody_asks(trained, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name, device, expected in (("zh-en", "cpu", "int8"), ("en-zh", "auto", "int8"), (trained, "cpu", "float32")):
        assert regard.load(name, "auto", device).engine.precision == expected
    assert type(regard.load("zh-en-recurrent", "auto").engine) is PlainEngine
    assert regard.load("zh-en").engine.precision == "float32", "who studies a model gets its own numbers"
    monkeypatch.setenv("REGARD_NATIVE", "0")
    plain = regard.load("zh-en", "auto").engine
    assert type(plain) is PlainEngine and {p.dtype for p in plain.model.parameters()} == {torch.float32}


def test_a_gpu_is_taken_where_there_is_one_that_can_do_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto", "float32") == "cuda"
    assert choose_device("auto", "bfloat16") == "cuda"
    assert choose_device("auto", "int8") == "cpu"
    assert choose_device("cpu", "float32") == "cpu"
    with pytest.raises(ValueError, match="precision on a cuda must be float32 or bfloat16, got 'int8'"):
        choose_device("cuda", "int8")


def test_a_device_that_is_not_there_is_refused(trained, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device 'cuda' needs a CUDA device, and there is none here"):
        regard.load(trained, device="cuda")
    with pytest.raises(ValueError, match="unknown device 'tpu'"):
        regard.load(trained, device="tpu")
    with pytest.raises(ValueError, match="precision on a cpu must be float32 or int8, got 'bfloat16'"):
        regard.load(trained, "bfloat16", "auto")


def test_plain_models_run_in_bfloat16(trained):
    """What runs on a GPU, run on the CPU: no part insists on float32."""
    checkpoint = load_model(trained)
    checkpoint.model.to(torch.bfloat16)
    assert Translator.from_checkpoint(checkpoint, PlainEngine(checkpoint.model)).translate("a b c")[0].text


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_gpu_translates_as_a_cpu_does(trained, precision):
    texts = ["a b c", "d e f g", "", "h i j a b"]
    found = regard.load(trained, precision, "cuda")
    assert next(found.model.parameters()).device.type == "cuda"
    there, here = found.translate(texts), regard.load(trained).translate(texts)
    if precision == "float32":
        assert [one.text for one in there] == [one.text for one in here]
    for one, other in zip(there, here, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4 if precision == "float32" else 0.2)


@pytest.mark.parametrize("how", ["greedy", "beam", "sample", "prefix"])
def test_a_plain_translation_on_a_cpu_imports_no_pytorch(how, trained, tmp_path):
    """From the folder or the bundled name to the text, whatever the search."""
    code = f"""
import dataclasses, sys
import regard
for name in ("zh-en", {str(trained)!r}):
    translator = regard.load(name, device="auto")
    method = "greedy" if {how!r} == "prefix" else {how!r}
    settings = dataclasses.replace(translator.settings, method=method)
    assert translator.translate("a b c", settings, prefix="a" * ({how!r} == "prefix"))[0].tokens
print(sorted(name for name in sys.modules if name.split(".")[0] in {{"torch", "triton", "matplotlib", "pandas"}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_an_engine_without_pytorch_finds_what_one_of_the_modules_finds(trained):
    for precision in ("float32", "int8"):
        light = regard.load(trained, precision)
        packed = select_engine(load_model(trained).model, precision)
        assert type(light.engine) is type(packed) is NativeEngine
        texts = [light.tokenizer.encode(text, "src") for text in ("a b c", "d e f g", "h i j a b")]
        for method in ("greedy", "beam", "sample"):
            settings = replace(light.settings, method=method)
            found, expected = (sorted(engine.search(texts, settings)) for engine in (light.engine, packed))
            assert [(i, [h.ids for h in some]) for i, some in found] == [
                (i, [h.ids for h in some]) for i, some in expected
            ]
            for (_, some), (_, others) in zip(found, expected, strict=True):
                assert [h.score for h in some] == pytest.approx([h.score for h in others], abs=1e-5)


def test_an_engine_from_a_folder_stands_by_itself_in_another_process(trained):
    translator = regard.load(trained, "int8")
    again = pickle.loads(pickle.dumps(translator))
    assert again.translate("a b c") == translator.translate("a b c")
    assert not again.model.training


def test_bundled_models_read_traditional_chinese_as_simplified():
    traditional, simplified = regard.load("zh-en", "int8").translate(["介紹一下西安", "介绍一下西安"])
    assert traditional == simplified and "Xi'an" in simplified.text


def test_public_names_are_listed():
    assert set(regard.__all__) | {"__version__"} == set(dir(regard))
    assert "load" in dir(regard)
