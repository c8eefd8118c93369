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


def shares(view: dict, best: bool = True) -> np.ndarray:
    """Gives what each output word looked at, by the head that aligns best or over all heads.

    Pieces of a key are added, those of a query averaged.
    """
    mean = _aligned(view) if best else weights(view, "cross").mean(axis=(0, 1))
    by_key = np.stack([mean[:, word["places"]].sum(1) for word in view["source"]["words"]], axis=1)
    return np.stack([by_key[word["places"]].mean(0) for word in words(view["target"])])


def _aligned(view: dict) -> np.ndarray:
    at = view["aligning"]
    head = weights(view, "cross")[at["layer"], at["head"]]
    return np.concatenate([head[1:], head[-1:]]) if at["at"] == "read" else head  # a piece is read one row below


def shown(piece: str) -> str:
    """Writes a piece as the English page does."""
    return SIGNS.get(piece, piece)


def short(value: float, digits: int) -> str:
    """Writes a number below ten as the page does."""
    text = f"{value:.{digits}f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}".replace("e-0", "e-")
    return text.replace("-", "−")
