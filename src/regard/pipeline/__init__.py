"""One call from a model's folder, or a bundled model's name, to a model that is ready."""

from dataclasses import replace
from os import PathLike

import torch

from regard.checkpoint import Checkpoint, load_model
from regard.config import choose
from regard.engine import swift
from regard.pipeline.generator import Writer
from regard.pipeline.shortlist import load_shortlist
from regard.pipeline.translator import Translator
from regard.zoo import find_model

DEVICE = {"cpu": ("float32", "int8"), "cuda": ("float32", "bfloat16")}


def load(
    path: str | PathLike[str],
    precision: str = "float32",
    device: str = "cpu",
    shortlist: str | PathLike[str] | None = None,
) -> Translator:
    """Opens a model folder, the model inside a run's folder, or a bundled model by its name, ready to translate.

    A decoder comes as a `Writer`, ready to write.
    Models are packed for speed: on a CPU, in `int8` for more of it; on `cuda` for steps that are one captured graph,
    in `bfloat16` for more speed. `auto` is the GPU where there is one that can do it. With a shortlist, which
    `regard shortlist` makes, only the words are looked through that a source suggests.
    """
    place = choose_device(device, precision)
    checkpoint = load_model(find_model(path))
    model = checkpoint.model if place == "cpu" else checkpoint.model.to(place, getattr(torch, precision))
    translator = ready(replace(checkpoint, model=swift(model, precision)))
    if shortlist is not None:
        translator.shortlist = load_shortlist(shortlist, checkpoint.tokenizer)
    return translator


def ready(checkpoint: Checkpoint) -> Translator:
    """Gives what a model is used by: a writer for a decoder, else a translator."""
    return (Writer if checkpoint.settings.model.family == "decoder" else Translator).of(checkpoint)


def choose_device(name: str, precision: str) -> str:
    """Gives the device, and refuses one that is not there or does not have the precision."""
    choose(dict.fromkeys(("float32", "bfloat16", "int8")), precision, "precision")
    choose(dict.fromkeys(("auto", *DEVICE)), name, "device")
    there = torch.cuda.is_available() if name != "cpu" else False
    if name == "auto":
        name = "cuda" if there and precision in DEVICE["cuda"] else "cpu"
    if name == "cuda" and not there:
        raise ValueError("device 'cuda' needs a CUDA device, and there is none here: use cpu or auto")
    if precision not in DEVICE[name]:
        raise ValueError(f"precision on a {name} must be {' or '.join(DEVICE[name])}, got {precision!r}")
    return name
