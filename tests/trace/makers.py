"""Translators with random models of every kind, small enough to be looked into in no time."""

import torch

from regard.attention import ATTENTION
from regard.build import REFUSED, REFUSED_IN_TEXT, build_model
from regard.config import DecodeSettings, ModelSettings, PartSettings
from regard.engine import Engine
from regard.engine.plain import PlainEngine
from regard.model.norm import BatchNorm
from regard.pipeline.translator import Translator
from regard.position import POSITION
from regard.trace import trace
from tests.pipeline.test_translator import TOKENIZER, V

METHODS = {
    "greedy": {"method": "greedy"},
    "beam": {"method": "beam", "beam": 3, "n_best": 2},
    "sample": {"method": "sample", "n_best": 2, "seed": 7},
}
TEXTS = ["abc", "", "hello"]
ACTING_ON_HEADS = {"difference", "shaw", "t5", "alibi", "rotary"}  # which a recurrent model has none of
SCHEMES = {
    **{name: PartSettings(name) for name in POSITION if name not in REFUSED_IN_TEXT},
    "sinusoidal beside": PartSettings("sinusoidal", {"join": "concatenate", "width": 6}),
    "learned beside": PartSettings("learned", {"join": "concatenate", "width": 6}),
    "shaw with values": PartSettings("shaw", {"values": True, "max_distance": 3}),
}
MODELS = [
    (family, scheme)
    for family in ("transformer", "recurrent")
    for scheme, part in SCHEMES.items()
    if family == "transformer" or part.name not in ACTING_ON_HEADS
]
PAIRS = [
    (attention, scheme)
    for attention in ATTENTION
    for scheme, part in SCHEMES.items()
    if (attention, part.name) not in REFUSED
]


def make_model(family="transformer", scheme="sinusoidal", attention="scaled_dot", dtype=torch.float64, **changes):
    """Makes a model with random parameters, all of them, biases and norms included."""
    torch.manual_seed(5)
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 22, "n_heads": 2, "d_ff": 13, "dropout": 0.0}
    parts = {"position": SCHEMES[scheme], "attention": PartSettings(attention)}
    model = build_model(ModelSettings(family=family, **(sizes | {"tie": "none"} | parts | changes)), (V, V))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        for module in model.modules():
            if isinstance(module, BatchNorm):  # as if it had seen some batches
                module.mean.normal_(std=0.1)
                module.variance.uniform_(0.5, 2.0)
    return model.to(dtype).eval()


def make_translator(model, **changes):
    """Makes a translator whose targets have at most four tokens."""
    usual = {"method": "greedy", "max_ratio": 0.0, "max_extra": 4, "batch_tokens": 20, "retry": False}
    settings = DecodeSettings(**(usual | changes))
    return Translator(model if isinstance(model, Engine) else PlainEngine(model), TOKENIZER, settings, "zh", "en", 30)


def one_trace(model, text="bad cab", **changes):
    """Traces one text."""
    return trace(make_translator(model, **changes), text)
