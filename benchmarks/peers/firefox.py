"""A model at random for Firefox's engine, which runs nothing but the shape of Firefox's own.

Norms come after the layers and the decoder has SSRUs (Kim et al. 2019, aclanthology.org/D19-5632) instead of
self-attention; width, heads, layers and vocabulary are ours. One token's bias makes it the only one that is ever
written, so that their number can be counted.
"""

from pathlib import Path

import numpy as np

from regard.config import ModelSettings

from .marian_format import Item, int8_item, plain_item, write_bin

INTGEMM8 = 0x4101  # as the fork of Marian numbers it that Firefox's models are made with
INPUT_FACTOR = 127.0 / 8  # inputs up to ±8 in 8 bits; real models bring a factor for each product
ALWAYS = 1e4  # added to the logit of the token that is always written


def written_tokens(n_source: int) -> int:
    """Return how many tokens the engine writes where EOS never comes, for so many source pieces without EOS."""
    return min(2 * (n_source + 1) + 4, 256)


def write_firefox_model(path: Path, settings: ModelSettings, vocab_size: int, token: int) -> None:
    """Write a model that says nothing but one token."""
    rng, D, F = np.random.default_rng(0), settings.d_model, settings.d_ff
    items: dict[str, Item] = {}

    def put(name: str, n_in: int, n_out: int, bias: str | None) -> None:
        items[name] = int8_item(rng.normal(0, n_in**-0.5, (n_out, n_in)), (n_in, n_out), INTGEMM8)
        items[f"{name}_QuantMultA"] = _floats(np.array([[INPUT_FACTOR]]))
        if bias is not None:
            items[bias] = _floats(np.zeros((1, n_out)))

    def put_norm(name: str) -> None:
        items[f"{name}_ln_scale"], items[f"{name}_ln_bias"] = _floats(np.ones((1, D))), _floats(np.zeros((1, D)))

    def put_attention(name: str) -> None:
        for letter in "qkvo":
            put(f"{name}_W{letter}", D, D, f"{name}_b{letter}")
        put_norm(f"{name}_Wo")

    for stack, n_layers in (("encoder", settings.n_encoder_layers), ("decoder", settings.n_decoder_layers)):
        for layer in (f"{stack}_l{n + 1}" for n in range(n_layers)):
            put_attention(f"{layer}_{'self' if stack == 'encoder' else 'context'}")
            if stack == "decoder":
                put(f"{layer}_rnn_W", D, D, None)
                put(f"{layer}_rnn_Wf", D, D, f"{layer}_rnn_bf")
                put_norm(f"{layer}_rnn_ffn")
            put(f"{layer}_ffn_W1", D, F, f"{layer}_ffn_b1")
            put(f"{layer}_ffn_W2", F, D, f"{layer}_ffn_b2")
            put_norm(f"{layer}_ffn_ffn")
    items["Wemb"] = int8_item(rng.normal(0, D**-0.5, (vocab_size, D)), (vocab_size, D), INTGEMM8)
    items["none_QuantMultA"] = _floats(np.array([[INPUT_FACTOR]]))
    items["decoder_ff_logit_out_b"] = _floats(ALWAYS * (np.arange(vocab_size) == token)[None])
    sizes = {
        "dim-emb": D,
        "transformer-heads": settings.n_heads,
        "enc-depth": settings.n_encoder_layers,
        "dec-depth": settings.n_decoder_layers,
        "transformer-dim-ffn": F,
    }
    write_bin(path, items, sizes)


def firefox_decoder_weights(settings: ModelSettings, vocab_size: int) -> int:
    """Count the numbers in the matrices that each target token meets: an SSRU has 2 D² where self-attention has 4."""
    D, F = settings.d_model, settings.d_ff
    return settings.n_decoder_layers * (4 * D * D + 2 * D * F) + D * vocab_size


def _floats(array: np.ndarray) -> Item:
    return plain_item(array.astype(np.float32))
