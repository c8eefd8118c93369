"""HTTP and the built page."""

from pathlib import Path

PAGE = Path(__file__).parent / "page"
UNBUILT = "the page is not built in this copy: run make page, which needs no Node installed"
