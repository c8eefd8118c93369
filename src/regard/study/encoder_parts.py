"""Classifiers from settings, made of the same layers as the Transformer's encoder."""

import torch
from torch import nn

from regard.batch import PAD
from regard.build import NORM_FIRST, assemble_heads, build_part, refuse_meaningless
from regard.config import HeadsSettings, ModelSettings, choose
from regard.model.classifier import Classifier
from regard.model.embedding import Embedding, make_table
from regard.model.encoder import Encoder, EncoderLayer
from regard.model.feed_forward import FeedForward
from regard.model.multihead import check_sizes
from regard.model.norm import NORM
from regard.model.patches import Patches
from regard.model.residual import Residual
from regard.position import POSITION, Position

SIZE = 0.5**0.5  # root mean square of sines and cosines


def build_classifier(
    settings: ModelSettings, position: Position, size: int, n_classes: int, reads: str, pool: str
) -> Classifier:
    """Makes a classifier that reads patches of `size` numbers, or ids below `size`."""
    make = choose({"patches": _patches, "ids": _ids}, reads, "kind of token")
    embedding = make(settings, position, size)
    return Classifier(embedding, build_encoder(settings, position), settings.d_model, n_classes, pool)


def build_encoder(settings: ModelSettings, position: Position) -> Encoder:
    """Makes the encoder's layers around one position scheme."""
    if min(settings.n_encoder_layers, settings.d_ff) < 1:
        raise ValueError(
            f"n_encoder_layers and d_ff must be 1 or more, got {settings.n_encoder_layers} and {settings.d_ff}"
        )
    heads = HeadsSettings(settings.d_model, settings.n_heads, attention=settings.attention)
    first, norm = choose(NORM_FIRST, settings.norm_place, "norm_place"), choose(NORM, settings.norm, "norm")
    layers = [
        EncoderLayer(
            assemble_heads(heads, position),
            FeedForward(settings.d_model, settings.d_ff, settings.activation, settings.dropout),
            [Residual(norm(settings.d_model), first, settings.dropout) for _ in range(2)],
        )
        for _ in range(settings.n_encoder_layers)
    ]
    return Encoder(layers, norm(settings.d_model) if first else None)


def build_places(settings: ModelSettings, n_places: int, n_speakers: int = 1, base: float = 10000.0) -> Position:
    """Makes the position scheme; tables are as long as the places need.

    What is learned in it starts as large as sines are. Their own small starts suit long training; here a model has
    hundreds of steps, in which places that begin near 0 are hardly found.
    """
    check_sizes(settings.d_model, settings.n_heads, settings.d_model)
    refuse_meaningless(settings.attention.name, settings.position.name)
    d_head = settings.d_model // settings.n_heads
    sizes = {
        "width": settings.d_model,
        "d_head": d_head,
        "n_heads": settings.n_heads,
        "max_len": n_places,
        "n_speakers": n_speakers,
        "base": base,
        "scale": 1.0 if settings.attention.name == "dot" else d_head**-0.5,
    }
    position = build_part(POSITION, settings.position, "position", sizes)
    with torch.no_grad():
        for codes in position.parameters():
            codes *= SIZE / codes.square().mean().sqrt()
    return position


def _patches(settings: ModelSettings, position: Position, size: int) -> nn.Module:
    return Patches(size, settings.d_model, position, settings.dropout)


def _ids(settings: ModelSettings, position: Position, size: int) -> nn.Module:
    return Embedding(make_table(size, settings.d_model, PAD), position, settings.dropout)
