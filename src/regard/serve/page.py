"""Where the built page lies, and what is said where it was not built."""

from pathlib import Path

PAGE = Path(__file__).parent / "page"
UNBUILT = "the page is not built in this copy: make page builds it, and needs no Node of yours"
