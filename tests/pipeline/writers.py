"""Writers with random models, small enough to be judged by brute force."""

import torch

from regard.build import build_model
from regard.config import DecodeSettings, ModelSettings, PartSettings
from regard.data.tokenizer import Tokenizer, train_characters
from regard.engine.plain import PlainEngine
from regard.pipeline.generator import Generator

LETTERS = "abcdef \n"
TOKENIZER = Tokenizer((train_characters([LETTERS], 100, byte_fallback=False),))
V = TOKENIZER.vocab_size("tgt")


def make_model(position="rotary", sharp=1.0, **changes):
    """Makes a decoder with random parameters, large enough to say different things after different texts."""
    torch.manual_seed(1)
    part = position if isinstance(position, PartSettings) else PartSettings(position)
    sizes = {"n_encoder_layers": 0, "n_decoder_layers": 2, "d_model": 12, "n_heads": 2, "d_ff": 9, "dropout": 0.0}
    settings = ModelSettings(family="decoder", tie="none", position=part, **(sizes | changes))
    model = build_model(settings, (V, V)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(sharp if parameter.dim() == 2 else 1.0)
    return model


def make_writer(model=None, max_len=32, window=32, form="text", tokenizer=TOKENIZER, **changes):
    settings = DecodeSettings(**({"method": "sample", "max_extra": 9} | changes))
    return Generator(PlainEngine(model or make_model()), tokenizer, settings, "en", max_len, form, window)
