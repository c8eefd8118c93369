"""What the server told, as arrays to compare pictures with."""

import zlib
from base64 import b64decode

import numpy as np

SIGNS = {"<s>": "‹start›", "</s>": "‹end›"}


def weights(view: dict, kind: str) -> np.ndarray:
    """Unpacks all weights of a kind: [layer, head, query, key]."""
    found = next(each for each in view["kinds"] if each["kind"] == kind)
    bytes_ = np.frombuffer(zlib.decompress(b64decode(found["weights"]), -15), dtype=np.uint8)
    shape = (found["n_layers"], found["n_heads"], found["n_queries"], found["n_keys"])
    return (bytes_.reshape(shape) / 255.0) ** 2


def words(side: dict) -> list[dict]:
    """Gives the words of a side that are said."""
    return [word for word in side["words"] if word["text"] not in SIGNS]


def shares(view: dict, best: bool = True, layer: int | None = None) -> np.ndarray:
    """Return what each output word attended to, by the heads that align best, over all heads or those of one layer.

    Tokens of a key are added, those of a query averaged.
    """
    mean = _aligned(view) if best else weights(view, "cross").mean(axis=(0, 1))
    mean = mean if layer is None else weights(view, "cross")[layer].mean(axis=0)
    by_key = np.stack([mean[:, word["places"]].sum(1) for word in view["source"]["words"]], axis=1)
    return np.stack([by_key[word["places"]].mean(0) for word in words(view["target"])])


def _aligned(view: dict) -> np.ndarray:
    every, at = weights(view, "cross"), view["aligning"] or {"layer": None, "head": None}
    layers = every if at["layer"] is None else every[[at["layer"]]]
    return (layers if at["head"] is None else layers[:, [at["head"]]]).mean(axis=(0, 1))


def shown(piece: str) -> str:
    """Writes a piece as the English page does."""
    return SIGNS.get(piece, piece)


def short(value: float, digits: int) -> str:
    """Writes a number below ten as the page does."""
    text = f"{value:.{digits}f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}".replace("e-0", "e-")
    return text.replace("-", "−")
