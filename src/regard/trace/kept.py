"""The heads that align best, kept beside a model."""

from dataclasses import asdict, dataclass
from pathlib import Path

from regard.checkpoint import ALIGNMENT, model_folder, read_json, write_json
from regard.text.whole import whole_file
from regard.trace.choice import Choice, named_choices
from regard.trace.chosen import Chosen


@dataclass(frozen=True)
class Kept:
    """The name of some heads, and what they were chosen by: a measure, its value, on how many pairs of which text."""

    heads: str
    by: str
    value: float | None
    n_pairs: int
    on: str


def keep_heads(folder: Path, chosen: Chosen, on: str) -> Path:
    """Writes a choice into a model's folder."""
    path = model_folder(folder) / ALIGNMENT
    kept = Kept(chosen.heads, chosen.by, chosen.value(chosen.heads), chosen.n_pairs, on)
    with whole_file(path) as draft:
        write_json(draft, asdict(kept))
    return path


def kept_heads(folder: Path) -> str | None:
    """Reads which heads were chosen; None where nobody has chosen any."""
    path = model_folder(folder) / ALIGNMENT
    if not path.exists():
        return None
    heads = read_json(path).get("heads")
    if not isinstance(heads, str):
        raise ValueError(f"{path}: this must name heads, such as cross:1:3:read, got {heads!r}")
    return heads


def kept_choice(folder: Path, sizes: tuple[int, int]) -> Choice | None:
    """Gives the heads that were kept for a model with so many layers and heads of cross attention."""
    heads = kept_heads(folder)
    return None if heads is None else named_choices(heads, sizes)[0]
