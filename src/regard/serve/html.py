"""A view as one HTML file that opens without a server."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from regard.serve.errors import BrokenError
from regard.serve.json_answer import to_json
from regard.serve.page import PAGE, UNBUILT
from regard.serve.payload import head_of, view_of
from regard.serve.view import Saved
from regard.text.whole import whole_file
from regard.trace.choice import Choice
from regard.trace.trace import Trace

PLACE = "<!--regard-view-->"
# Numbers of heads that a file takes besides the packed weights: about two megabytes.
MOST_NUMBERS = 200_000


def save_html(
    trace: Trace, path: str | PathLike[str], model: str = "", *others: Trace, aligning: Choice | None = None
) -> None:
    """Writes the page with a trace inside it, and others to compare it with."""
    try:
        page = page_of(trace, model, others, aligning)
    except BrokenError as error:
        raise ValueError(f"{path}: {error}") from error
    with whole_file(Path(path)) as draft:
        draft.write_text(page, encoding="utf-8")


def page_of(trace: Trace, model: str = "", others: Sequence[Trace] = (), aligning: Choice | None = None) -> str:
    """Gives the page with a trace inside it."""
    built = PAGE / "view.html"
    if not built.is_file():
        raise BrokenError(UNBUILT)
    before, _, after = built.read_text(encoding="utf-8").partition(PLACE)
    data = inlined(saved_of(trace, model, others, aligning))
    return f'{before}<script type="application/json" id="regard-view">{data}</script>{after}'


def saved_of(trace: Trace, model: str = "", others: Sequence[Trace] = (), aligning: Choice | None = None) -> Saved:
    """Gives what lies inside a page: the numbers of all heads where they are few, and of more the weights alone."""
    numbers = sum(look.n_heads * look.sizes[1] * look.sizes[2] * 8 for look in trace.looks)
    looks = trace.looks if numbers <= MOST_NUMBERS else ()
    heads = [head_of(trace, look.kind, look.layer, head) for look in looks for head in range(look.n_heads)]
    first, *rest = (trace, *others)
    return Saved([view_of(first, model, aligning=aligning), *(view_of(each, model) for each in rest)], heads)


def inlined(saved: Saved) -> str:
    """Writes JSON that can stand inside HTML: no sign in it opens or closes anything."""
    return to_json(saved).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
