"""PyTorch Transformers as what the C++ library packs."""

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import ScaledDot
from regard.engine.native import NativeDecoder, NativeEngine, find_library
from regard.engine.native_weights import Codes, TransformerWeights
from regard.model.layers import Dropout, Embedding, FactoredTable, FeedForward, Linear, Output
from regard.model.multihead import MultiHeadAttention
from regard.model.norm import LayerNorm, Residual, RMSNorm
from regard.model.seq2seq import Seq2Seq
from regard.model.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, Transformer
from regard.native import open_library
from regard.position.absolute import HalfWave, Index, Learned, NoPosition, Sinusoidal
from regard.position.contract import PositionTable
from regard.position.relative import Rotary

# What packing understands, by the very class: a part that is not here may do anything, and its model stays as it is.
PACKABLE = {
    *(Transformer, Encoder, EncoderLayer, Decoder, DecoderLayer, Embedding, Output, Residual, FeedForward, Dropout),
    FactoredTable,
    *(MultiHeadAttention, ScaledDot, LayerNorm, RMSNorm),
    *(NoPosition, Sinusoidal, Learned, Index, HalfWave, Rotary),
    *(Linear, nn.Embedding, nn.Linear, nn.ModuleList),
}
NORM = {LayerNorm: "layer", RMSNorm: "rms"}
ACTIVATION = {F.relu: "relu", F.gelu: "gelu", F.silu: "silu"}


def pack_for_cpu(model: Seq2Seq, precision: str) -> NativeEngine | None:
    """Return the native engine of a model; None where its parts, its precision or this machine do not allow one."""
    transformer = packable(model)
    if transformer is None or {(p.dtype, p.device.type) for p in model.parameters()} != {(torch.float32, "cpu")}:
        return None
    if (library := find_library()) is None:
        return None
    frozen = deepcopy(transformer).eval().requires_grad_(False)
    decoder = NativeDecoder(from_transformer(frozen), precision, library)
    return NativeEngine(decoder, lambda: frozen, (_pack_again, (frozen, precision)))


def _pack_again(model: Transformer, precision: str) -> NativeEngine:
    decoder = NativeDecoder(from_transformer(model), precision, open_library())
    return NativeEngine(decoder, lambda: model, (_pack_again, (model, precision)))


def packable(model: Seq2Seq) -> Transformer | None:
    """Return the model if it is a Transformer of parts that packing understands and that are all alike."""
    if type(model) is not Transformer or not {type(module) for module in model.modules()} <= PACKABLE:
        return None
    decoder_layers: list[Any] = list(model.decoder.layers)
    layers: list[Any] = [*model.encoder.layers, *decoder_layers]
    residuals: list[Any] = [module for module in model.modules() if type(module) is Residual]
    first, last = residuals[0], (model.encoder.last_norm, model.decoder.last_norm)
    embedding_norms = (model.src.norm, model.tgt.norm)
    norms = [one.norm for one in residuals] + [norm for norm in (*last, *embedding_norms) if norm is not None]
    alike = (
        {side.table.embedding_dim for side in (model.src, model.tgt, model.output)},
        {(layer.attention.n_heads, layer.feed_forward.inner.out_features) for layer in layers},
        {layer.feed_forward.activation for layer in layers},
        {one.norm_first for one in residuals} | {norm is not None for norm in last},
        {norm is not None for norm in embedding_norms},
        {(side.scale == 1.0, side.table.embedding_dim) for side in (model.src, model.tgt)},
        {type(norm) for norm in norms} | {type(first.norm)},
        {_rotary_base(part.position) for part in (model.src, model.tgt, *(layer.attention for layer in layers))},
        {_rotary_base(layer.cross_attention.position) for layer in decoder_layers} | {None},
    )
    return model if all(len(kinds) == 1 for kinds in alike) else None


def _rotary_base(position: Any) -> float | None:
    return position.base if type(position) is Rotary else None


def rotary_width(model: Transformer) -> int:
    """Return the features of a head, if positions rotate its queries and keys; else 0."""
    rotates = isinstance(model.tgt.position, Rotary)
    return model.tgt.table.embedding_dim // model.decoder.layers[0].attention.n_heads if rotates else 0  # pyright: ignore


def from_transformer(model: Transformer) -> TransformerWeights:
    """Return the weights of a packable model, which stay where they are."""
    first: Any = model.decoder.layers[0]
    norm = first.after_attention.norm
    d_rotary = rotary_width(model)
    src, tgt, output = (_array(side.table.weight) for side in (model.src, model.tgt, model.output))
    return TransformerWeights(
        first.attention.n_heads,
        NORM[type(norm)],
        0.0,
        first.after_attention.norm_first,
        ACTIVATION[first.feed_forward.activation],
        d_rotary,
        type(model.tgt.position) not in {NoPosition, Rotary},
        model.limit,
        src.shape[1],
        src,
        tgt,
        output,
        {name: _array(tensor) for name, tensor in model.state_dict().items()} | _norm_eps(model),
        (len(model.encoder.layers), len(model.decoder.layers)),
        _codes(model.src, d_rotary),
        _codes(model.tgt, d_rotary),
        model.tgt.scale != 1.0 or src.shape[1] == 1,
    )


def _norm_eps(model: Transformer) -> dict[str, np.ndarray]:
    norms: dict[str, Any] = {name: module for name, module in model.named_modules() if type(module) in NORM}
    default = torch.finfo(torch.float32).eps
    return {f"{name}.eps": np.array(default if norm.eps is None else norm.eps) for name, norm in norms.items()}


def _codes(side: Embedding, d_rotary: int) -> Codes:
    table = PositionTable(side.position, side.table.weight, d_rotary)
    return partial(_codes_between, table)


def _codes_between(table: PositionTable, first: int, end: int) -> np.ndarray:
    return _array(table.at(first, end))


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()
