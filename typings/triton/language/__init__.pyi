# Triton compiles what it decorates: to a checker of Python it is anything.
from typing import Any

def __getattr__(name: str) -> Any: ...
