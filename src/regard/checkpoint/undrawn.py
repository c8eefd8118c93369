"""Making a model whose numbers will be read, without drawing others first."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

DRAWS = {Tensor.uniform_, Tensor.normal_}


class Undrawn(TorchFunctionMode):
    """Leaves new parameters as memory happens to be: drawing them is most of the time that a model takes to open."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if func in DRAWS or getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else named["tensor"]
        return func(*args, **named)
