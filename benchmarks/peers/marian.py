"""Hugging Face's Marian, with our weights in it: it computes the same function."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from regard.batch import make_source
from regard.config import ModelSettings
from regard.model import Transformer
from regard.padding import BOS, EOS, PAD
from regard.position.absolute import sinusoids

from .work import Task

MAX_LEN = 256


def make_marian(sizes: ModelSettings, vocab_size: int) -> MarianMTModel:
    """Makes the model at random; dropout stands where ours has it."""
    return MarianMTModel(
        MarianConfig(
            vocab_size=vocab_size,
            d_model=sizes.d_model,
            encoder_layers=sizes.n_encoder_layers,
            decoder_layers=sizes.n_decoder_layers,
            encoder_attention_heads=sizes.n_heads,
            decoder_attention_heads=sizes.n_heads,
            encoder_ffn_dim=sizes.d_ff,
            decoder_ffn_dim=sizes.d_ff,
            activation_function=sizes.activation,
            dropout=sizes.dropout,
            activation_dropout=sizes.dropout,
            attention_dropout=0.0,
            max_position_embeddings=MAX_LEN,
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
            pad_token_id=PAD,
            eos_token_id=EOS,
            bos_token_id=BOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    )


@torch.no_grad()
def copy_weights(ours: Transformer, marian: MarianMTModel) -> None:
    """Puts our weights into Marian's places; the last norms of a pre-norm model get places where BART has them."""
    inner: Any = marian.model
    table = ours.tgt.table
    width = table.embedding_dim
    inner.shared.weight.copy_(table.weight)
    codes = sinusoids(torch.arange(MAX_LEN), width, 10000.0)
    for side in (inner.encoder, inner.decoder):
        side.embed_positions.weight.copy_(codes)
    layer: Any
    for layer, theirs in zip(ours.encoder.layers, inner.encoder.layers, strict=True):
        _copy_attention(layer.attention, layer.after_attention, theirs.self_attn, theirs.self_attn_layer_norm)
        _copy_feed_forward(layer, theirs)
    for layer, theirs in zip(ours.decoder.layers, inner.decoder.layers, strict=True):
        _copy_attention(layer.attention, layer.after_attention, theirs.self_attn, theirs.self_attn_layer_norm)
        across = theirs.encoder_attn, theirs.encoder_attn_layer_norm
        _copy_attention(layer.cross_attention, layer.after_cross_attention, *across)
        _copy_feed_forward(layer, theirs)
    for stack, side in ((ours.encoder, inner.encoder), (ours.decoder, inner.decoder)):
        if stack.last_norm is not None:
            side.layer_norm = stack.last_norm


def decode_marian(model: MarianMTModel, beam: int) -> Callable[[list[Task]], list[Tensor]]:
    """Makes the call that decodes batches, EOS kept out until the end."""

    @torch.inference_mode()
    def call(tasks: list[Task]) -> list[Tensor]:
        written = []
        for task in tasks:
            src = make_source(task.sources).to(model.device)
            n = task.n_tokens
            found = model.generate(  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
                input_ids=src.ids,
                attention_mask=(src.ids != PAD).long(),
                num_beams=beam,
                min_new_tokens=n,
                max_new_tokens=n,
                do_sample=False,
                length_penalty=1.0,
            )
            written.append(found[:, 1:])
        return written

    model.eval()
    return call


def _copy_attention(layer: Any, residual: Any, theirs: Any, norm: Any) -> None:
    pairs = (layer.w_q, theirs.q_proj), (layer.w_k, theirs.k_proj), (layer.w_v, theirs.v_proj)
    for source, target in (*pairs, (layer.w_o, theirs.out_proj), (residual.norm, norm)):
        target.load_state_dict(source.state_dict())


def _copy_feed_forward(layer: Any, theirs: Any) -> None:
    inside, residual = layer.feed_forward, layer.after_feed_forward
    pairs = (inside.inner, theirs.fc1), (inside.outer, theirs.fc2), (residual.norm, theirs.final_layer_norm)
    for source, target in pairs:
        target.load_state_dict(source.state_dict())
