"""Optional packages: the extra that installs each, and what is said where one is missing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

# `pip install regard` brings what translation needs; everything else comes with an extra.
EXTRAS = {
    **dict.fromkeys(("torch", "sacrebleu", "filelock", "zstandard"), "train"),
    **dict.fromkeys(("fastapi", "starlette", "pydantic", "uvicorn", "h11"), "serve"),
    "matplotlib": "plot",
    "anywidget": "notebook",
    "py3langid": "clean",
    "gensim": "vectors",
    "sklearn": "tasks",
    **dict.fromkeys(("ctranslate2", "onnx"), "export"),
    **dict.fromkeys(("huggingface_hub", "tokenizers"), "import"),
}


class MissingExtraError(ImportError, ValueError):
    """A package is not installed: an ImportError for who imports a name, a mistake of the user's for a command."""


@contextmanager
def importing() -> Iterator[None]:
    """Look for no garbage while modules are imported, of which none is: it would take a tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Name the extra where an import inside does not find one of its packages, and say what needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise missing(what, package) from error


def require(package: str, what: str) -> None:
    """Raise MissingExtraError where a package is not installed."""
    if not is_installed(package):
        raise missing(what, package)


def is_installed(package: str) -> bool:
    """Tell whether a package can be imported, without importing it."""
    return find_spec(package) is not None


def missing(what: str, package: str) -> MissingExtraError:
    """Return the error that says what needs a package, and which extra installs it."""
    way_out = f"pip install 'regard[{EXTRAS[package]}]'"
    return MissingExtraError(f"{what} needs {package}, which is not installed: {way_out}")
