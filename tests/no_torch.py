"""A plugin of pytest: `python -m pytest -p tests.no_torch tests/core` runs as if only the core were installed."""

import sys

# What the extras `train`, `plot` and their like bring; a module that is None cannot be imported.
BLOCKED = ("torch", "sacrebleu", "filelock", "matplotlib", "scipy", "pandas", "transformers", "triton", "sklearn")

assert not sys.modules.keys() & set(BLOCKED), "nothing may have been imported before it is blocked"
sys.modules.update(dict.fromkeys(BLOCKED))  # pyright: ignore[reportCallIssue, reportArgumentType]
