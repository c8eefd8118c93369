"""Whether a parameter is one process's part of a larger one."""

import sys

from torch import Tensor


def is_shard(tensor: Tensor) -> bool:
    """Tells whether a tensor is a DTensor; where nobody has loaded that module, which takes half a second, none is."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)
