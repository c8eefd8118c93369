"""The pages of studies, as the result of a run would fill them."""

from pathlib import Path

from tools.refresh_docs import refresh

PAGES = Path(__file__).parents[2] / "docs" / "studies"


def filled(found):
    """Fills the page of a study's own name from its JSON, and gives it; raises ValueError where they do not fit."""
    return refresh((PAGES / f"{found['study']}.md").read_text(encoding="utf-8"), found)
