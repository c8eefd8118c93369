"""Regard: train a sequence model with attention, run it fast, and look inside the very model that just ran."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are fetched when first used, so that `regard --help` need not wait for torch.
_HOMES = {
    "ATTENTION": "regard.attention",
    "POSITION": "regard.position",
    "HeadsSettings": "regard.config",
    "PartSettings": "regard.config",
    "Mask": "regard.mask",
    "MultiHeadAttention": "regard.model",
    "build_heads": "regard.build",
    "mask": None,
}

__all__ = [
    "ATTENTION",
    "POSITION",
    "HeadsSettings",
    "Mask",
    "MultiHeadAttention",
    "PartSettings",
    "build_heads",
    "mask",
]

if TYPE_CHECKING:
    from regard import mask
    from regard.attention import ATTENTION
    from regard.build import build_heads
    from regard.config import HeadsSettings, PartSettings
    from regard.mask import Mask
    from regard.model import MultiHeadAttention
    from regard.position import POSITION


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    home = _HOMES[name]
    return import_module(f"regard.{name}") if home is None else getattr(import_module(home), name)
