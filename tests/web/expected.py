"""The server's responses as arrays and texts, to compare with what the page draws."""

import zlib
from base64 import b64decode

import numpy as np

SPECIAL = {"<s>": "‹start›", "</s>": "‹end›"}


def weights(view: dict, kind: str) -> np.ndarray:
    """Unpack all weights of a kind: [layer, head, query, key]."""
    packed = next(each for each in view["kinds"] if each["kind"] == kind)
    values = np.frombuffer(zlib.decompress(b64decode(packed["weights"]), -15), dtype=np.uint8)
    shape = (packed["n_layers"], packed["n_heads"], packed["n_queries"], packed["n_keys"])
    return (values.reshape(shape) / 255.0) ** 2


def words(side: dict) -> list[dict]:
    """Return the words of a side, without special tokens."""
    return [word for word in side["words"] if word["text"] not in SPECIAL]


def cross_attention(view: dict, aligned: bool = True, layer: int | None = None) -> np.ndarray:
    """Return the weights of each output word on the source words: of the alignment heads, of all heads or of a layer.

    The tokens of a key are summed, those of a query averaged.
    """
    heads = weights(view, "cross")
    if layer is not None:
        tokens = heads[layer].mean(axis=0)
    else:
        tokens = _alignment_heads(view) if aligned else heads.mean(axis=(0, 1))
    by_key = np.stack([tokens[:, word["places"]].sum(1) for word in view["source"]["words"]], axis=1)
    return np.stack([by_key[word["places"]].mean(0) for word in words(view["target"])])


def _alignment_heads(view: dict) -> np.ndarray:
    heads, aligning = weights(view, "cross"), view["aligning"] or {"layer": None, "head": None}
    layers = heads if aligning["layer"] is None else heads[[aligning["layer"]]]
    return (layers if aligning["head"] is None else layers[:, [aligning["head"]]]).mean(axis=(0, 1))


def label(token: str) -> str:
    """Return a token as the English page writes it."""
    return SPECIAL.get(token, token)


def short(value: float, digits: int) -> str:
    """Format a number below ten as the page does."""
    text = f"{value:.{digits}f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}".replace("e-0", "e-")
    return text.replace("-", "−")
