"""Fixtures that the commands share with the server."""

from tests.serve.conftest import folders

__all__ = ["folders"]
