"""Arrays and their shapes in types, neither of which a program waits for before it computes with them.

`Float[Array, "B T"]` is jaxtyping's where shapes are checked: tests import it before anything of ours. A program only
runs, and needs neither that package nor the 50 ms of its import. NumPy is imported, in 65 ms, when its first function
is called: a translation on a CPU ends without.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import numpy as np
    from jaxtyping import Bool, Float, Int, Int8, Shaped, UInt8

    Array = np.ndarray
else:

    class _LazyNumPy:
        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("numpy"), name)

    class _Unchecked:
        """The type of an array whatever its shape."""

        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            return item[0]

    class Array:
        """A place for NumPy's class in types that nobody checks."""

    np = _LazyNumPy()
    Bool = Float = Int = Int8 = Shaped = UInt8 = _Unchecked

__all__ = ["Array", "Bool", "Float", "Int", "Int8", "Shaped", "UInt8", "np"]
