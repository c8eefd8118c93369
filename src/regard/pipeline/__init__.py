"""One call from a model's folder, or a bundled model's name, to a pipeline that is ready."""

from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from regard.checkpoint import CONFIG, check_sizes, load_tokenizer, model_folder, read_settings, read_stored
from regard.config import ModelSettings, Settings, choose
from regard.data.tokenizer import Tokenizer
from regard.device import find_device
from regard.engine import Engine, select_engine
from regard.engine.native import NativeDecoder, NativeEngine, find_library
from regard.engine.native_weights import from_arrays, packs
from regard.extras import needed_by
from regard.pipeline.shortlist import load_shortlist
from regard.pipeline.translator import Translator
from regard.zoo import cpu_precision, find_model

if TYPE_CHECKING:
    from regard.checkpoint.weights import Checkpoint
    from regard.model import Seq2Seq
    from regard.pipeline.generator import Generator

DEVICE = {"cpu": ("float32", "int8"), "cuda": ("float32", "bfloat16")}


def load(
    path: str | PathLike[str],
    precision: str = "float32",
    device: str = "cpu",
    shortlist: str | PathLike[str] | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> "Translator | Generator":
    """Open a model folder, the model inside a run's folder, or a bundled model by its name, ready to translate.

    A decoder-only model comes as a `Generator`, ready to write. Models are packed for speed: on a CPU, in `int8` for
    more of it; on `cuda` for steps that are one captured graph, in `bfloat16` for more speed. The device `auto` is the
    GPU where there is one that can do it, the precision `auto` int8 for bundled models on a CPU whose scores it leaves
    as they are. With a shortlist, which `regard shortlist` learns, only target words that a source
    suggests are searched. A folder of Hugging Face's Transformers is opened as a copy in our form; of a model of many
    languages, `src_lang` and `tgt_lang` name the two that are meant.
    """
    folder = model_folder(find_model(path))
    device = choose_device(device, "float32" if precision == "auto" else precision)
    as_usual = "float32" if precision == "auto" else precision  # where C++ does not run it
    precision = cpu_precision(folder) if precision == "auto" and device == "cpu" else as_usual
    made = read_settings(folder / CONFIG)
    tokenizer = load_tokenizer(folder, made)
    engine = open_native(folder, made, tokenizer, precision) if device == "cpu" else None
    if engine is None:
        plain = "a model without compiled code" if device == "cpu" else f"a model on {device}"
        plain = plain if packs(made.model) else f"a model with {' and '.join(plain_parts(made.model))}"
        pipeline = _load_plain(folder, device, as_usual, shortlist, f"{path}: {plain}")
        return pipeline.between(src_lang, tgt_lang) if isinstance(pipeline, Translator) else pipeline
    words = None if shortlist is None else load_shortlist(shortlist, tokenizer)
    languages = made.data.src_lang, made.data.tgt_lang
    translator = Translator(engine, tokenizer, made.decode, *languages, made.text.max_len, words, folder)
    return translator.between(src_lang, tgt_lang)


def load_translator(
    path: str | PathLike[str],
    precision: str = "float32",
    device: str = "cpu",
    shortlist: str | PathLike[str] | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> Translator:
    """Open a model that translates; raise ValueError for one that does not."""
    pipeline = load(path, precision, device, shortlist, src_lang, tgt_lang)
    if not isinstance(pipeline, Translator):
        raise ValueError(f"{path}: this model generates text and does not translate: use regard generate")
    return pipeline


def load_generator(path: str | PathLike[str], precision: str = "float32", device: str = "cpu") -> "Generator":
    """Open a model that generates text; raise ValueError for one that does not."""
    pipeline = load(path, precision, device)
    if isinstance(pipeline, Translator):
        raise ValueError(f"{path}: this model translates and does not generate text: use regard translate")
    return pipeline


def open_native(folder: Path, made: Settings, tokenizer: Tokenizer, precision: str) -> NativeEngine | None:
    """Return the C++ engine of a model's folder, without PyTorch; None where its parts or this machine have none."""
    if not packs(made.model) or (library := find_library()) is None:
        return None
    stored = read_stored(folder)
    check_sizes(made.model, stored.arrays, folder / CONFIG)
    vocab_sizes = tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt")
    weights = from_arrays(made.model, stored.rows(), stored.shapes(), vocab_sizes, stored.path)
    again = (_reopen, (folder, precision))
    return NativeEngine(NativeDecoder(weights, precision, library), partial(_plain_model, folder), again)


def _reopen(folder: Path, precision: str) -> Engine:
    return load(folder, precision).engine


def _plain_model(folder: Path) -> "Seq2Seq":
    return _load_checkpoint(folder, f"{folder}: the view into a model").model


def _load_checkpoint(folder: Path, what: str) -> "Checkpoint":
    with needed_by(what):
        from regard.checkpoint.weights import load_model  # PyTorch, which a C++ model needs for traces only

    return load_model(folder)


def _load_plain(
    folder: Path, device: str, precision: str, shortlist: str | PathLike[str] | None, what: str
) -> "Translator | Generator":
    checkpoint = _load_checkpoint(folder, what)
    from regard.pipeline.generator import Generator  # PyTorch: the model is not one for C++, or is on a GPU

    model = checkpoint.model
    if device != "cpu":
        model = (model.bfloat16() if precision == "bfloat16" else model.float()).to(device)
    engine = select_engine(model, precision)
    if checkpoint.settings.model.family == "decoder":
        return Generator.from_checkpoint(checkpoint, engine)
    translator = Translator.from_checkpoint(checkpoint, engine)
    translator.folder = folder
    if shortlist is not None:
        translator.shortlist = load_shortlist(shortlist, checkpoint.tokenizer)
    return translator


def plain_parts(model: ModelSettings) -> list[str]:
    """Name the parts of a model that the C++ library does not run."""
    found = []
    for name in ("family", "attention", "position", "norm", "norm_place", "activation", "tie"):
        part = getattr(model, name)
        if not packs(replace(ModelSettings(), **{name: part})):
            found.append(f"{name} {getattr(part, 'name', part)!r}")
    return found or ["sizes of its own"]


def choose_device(name: str, precision: str) -> str:
    """Return the device, and refuse one that is not there or does not have the precision."""
    choose(dict.fromkeys(("auto", "float32", "bfloat16", "int8")), precision, "precision")
    choose(dict.fromkeys(("auto", *DEVICE)), name, "device")
    device = "cpu" if name == "auto" and precision not in DEVICE["cuda"] else find_device(name)
    if precision not in DEVICE[device]:
        raise ValueError(f"precision on a {device} must be {' or '.join(DEVICE[device])}, got {precision!r}")
    return device
