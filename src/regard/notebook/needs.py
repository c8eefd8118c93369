"""What must be installed before a notebook can show something."""

from importlib.util import find_spec

INSTALL = "pip install 'regard[notebook]'"


def lacking(*names: str) -> list[str]:
    """Lists what is not installed."""
    return [name for name in names if find_spec(name) is None]


def check_installed(what: str, *names: str) -> None:
    """Says how to install what something needs."""
    if missing := lacking(*names):
        raise ValueError(f"{what} need {' and '.join(missing)}, which is not installed: {INSTALL}")
