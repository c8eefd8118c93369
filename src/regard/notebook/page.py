"""The view as one HTML page, given back to a notebook."""

from html import escape

from IPython.display import HTML

from regard.serve.errors import BrokenError
from regard.serve.html import page_of
from regard.trace.trace import Trace

PLACE = 'id="regard-view"'
HIGH = 720  # pixels of the frame in which a notebook shows it


class Page(HTML):
    """A whole page as `data`; a notebook shows it in a frame of its own, so that neither disturbs the other."""

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(str(self.data))}" width="100%" height="{HIGH}" style="border: 0"></iframe>'


def make_page(trace: Trace, address: str) -> Page:
    """Puts a trace into the built page; the address says what is shown when it opens."""
    try:
        page = page_of(trace)
    except BrokenError as error:
        raise ValueError(str(error)) from error
    return Page(page.replace(PLACE, f'{PLACE} data-address="{escape(address)}"', 1))
