"""The quickest model there is that decodes as another does."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from regard.attention import ScaledDot
from regard.engine.cpu import NativeTransformer, turned_width
from regard.engine.cuda import SlottedTransformer
from regard.model.layers import Dropout, Embedding, FactoredTable, FeedForward, Linear, Output
from regard.model.lean import LeanTransformer
from regard.model.multihead import MultiHeadAttention
from regard.model.norm import LayerNorm, Residual, RMSNorm
from regard.model.quantize import quantize_linears
from regard.model.seq2seq import Seq2Seq
from regard.model.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, Transformer
from regard.native import Library, UnavailableError, open_library
from regard.position.absolute import HalfWave, Index, Learned, NoPosition, Sinusoidal
from regard.position.relative import Rotary

# What packing understands, by the very class: a part that is not here may do anything, and its model stays as it is.
PACKABLE = {
    *(Transformer, Encoder, EncoderLayer, Decoder, DecoderLayer, Embedding, Output, Residual, FeedForward, Dropout),
    FactoredTable,
    *(MultiHeadAttention, ScaledDot, LayerNorm, RMSNorm),
    *(NoPosition, Sinusoidal, Learned, Index, HalfWave, Rotary),
    *(Linear, nn.Embedding, nn.Linear, nn.ModuleList),
}


def swift(model: Seq2Seq, precision: str = "float32") -> Seq2Seq:
    """Gives the quickest model there is that decodes the same: packed where its parts allow it, else as it is.

    Packed are Transformers with scaled dot products and positions that are added to the tokens or turn queries and
    keys: on a CPU for compiled code, or for PyTorch where there is none; on a GPU, where positions are added, for steps
    of fixed shape, in the precision that the model has. In int8 the linear maps of every other model are still 8-bit
    ones.
    """
    return _packed(model, precision) or _plain(model, precision)


def _packed(model: Seq2Seq, precision: str) -> Seq2Seq | None:
    transformer = packable(model)
    if transformer is None:
        return None
    if transformer.output.table.weight.is_cuda:
        return None if turned_width(transformer) else SlottedTransformer(transformer)
    frozen = deepcopy(transformer).eval().requires_grad_(False)
    library = _library(frozen, precision)
    return LeanTransformer(frozen, precision) if library is None else NativeTransformer(frozen, precision, library)


def _plain(model: Seq2Seq, precision: str) -> Seq2Seq:
    return quantize_linears(deepcopy(model).eval()) if precision == "int8" else model  # pyright: ignore


def packable(model: Seq2Seq) -> Transformer | None:
    """Gives the model if it is a Transformer of parts that packing understands and that are all alike."""
    if type(model) is not Transformer or not {type(module) for module in model.modules()} <= PACKABLE:
        return None
    writing: list[Any] = list(model.decoder.layers)
    layers: list[Any] = [*model.encoder.layers, *writing]
    residuals: list[Any] = [module for module in model.modules() if type(module) is Residual]
    first, last = residuals[0], (model.encoder.last_norm, model.decoder.last_norm)
    kinds = {type(one.norm) for one in residuals} | {type(norm) for norm in last if first.norm_first}
    sizes = (
        {side.table.embedding_dim for side in (model.src, model.tgt, model.output)},
        {(layer.attention.n_heads, layer.feed_forward.inner.out_features) for layer in layers},
        {layer.feed_forward.activation for layer in layers},
        {one.norm_first for one in residuals} | {norm is not None for norm in last},
        kinds,
        {_turning(part.position) for part in (model.src, model.tgt, *(layer.attention for layer in layers))},
        {_turning(layer.cross_attention.position) for layer in writing} | {None},
    )
    return model if all(len(found) == 1 for found in sizes) else None


def _turning(position: Any) -> float | None:
    """Names what turns queries and keys, where something does."""
    return position.base if type(position) is Rotary else None


def _library(model: Transformer, precision: str) -> Library | None:
    """Gives the compiled code, where there is any and it is the quicker one."""
    if {parameter.dtype for parameter in model.parameters()} != {torch.float32}:
        return None
    try:
        library = open_library()
    except UnavailableError:
        return None
    return library if precision == "float32" or library.bytes_are_quick() else None
