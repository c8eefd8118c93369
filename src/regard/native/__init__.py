"""Arithmetic in C++, compiled by the user's own compiler when it is first asked for."""

from regard.native.library import Library, UnavailableError, open_library

__all__ = ["Library", "UnavailableError", "open_library"]
