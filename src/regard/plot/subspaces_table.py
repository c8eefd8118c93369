"""How words and positions lie to each other, as tables in the terminal."""

import torch
from jaxtyping import Float
from rich.table import Table
from torch import Tensor

from regard.plot.table import QUIET
from regard.study.angles import Comparison
from regard.study.subspaces import SubspaceStudy
from regard.study.subspaces import Table as WordTable

CAPTION = (
    "dims: of the words' and of the positions' subspace; angles in degrees, beside them those of random subspaces; "
    "overlap: mean of cos², 0 orthogonal, 1 one inside the other."
)
POINT_CAPTION = (
    "position: share of the variance that position explains, corrected for chance; beyond words: what it explains of "
    "what the means of words leave; features: how many hold half of the first; overlap: of what words and what places "
    "bring to a common fit, beside it that of random subspaces."
)
COLUMNS = ("stack", "size", "dims", "smallest", "random", "mean", "random ", "overlap", "random  ")


def angles_table(study: SubspaceStudy) -> Table:
    """Lists the angles between words and codes before the first layer."""
    table = Table(title=f"Words and codes of {study.model}, {study.scheme} positions", caption=CAPTION, **QUIET)
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number < 2 else "right")
    for name, found in distinct_tables(study).items():
        for each in found.comparisons:
            table.add_row(name, each.name, *comparison_cells(each))
    return table


def distinct_tables(study: SubspaceStudy) -> dict[str, WordTable]:
    """Gives the tables by stack; stacks that share words and codes have one."""
    named = {stack.stack: stack.table for stack in study.stacks if stack.table is not None}
    angles = [each.comparisons[0].angles for each in named.values()]
    if len(angles) == 2 and torch.equal(*angles):
        return {"both": next(iter(named.values()))}
    return named


def points_table(study: SubspaceStudy) -> Table:
    """Lists what position explains at each point of the stream, and by how many features."""
    table = Table(
        title=f"Position in the stream of {study.model}, {study.n_pairs} pairs", caption=POINT_CAPTION, **QUIET
    )
    columns = ("stack", "where", "position", "beyond\nwords", "features", "largest", "dims", "overlap", "random")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right")
    for stack in study.stacks:
        for point in stack.points:
            each, n = point.comparison, n_carrying(point.shares)
            explained = f"{point.total:.1%}", f"{point.beyond_words:.1%}"
            features = str(n), f"{float(point.shares.max()):.0%}"
            dims = f"{each.dims[0]}, {each.dims[1]}"
            table.add_row(stack.stack, point.point, *explained, *features, dims, *_overlaps(each))
    return table


def n_carrying(shares: Float[Tensor, " D"]) -> int:
    """Counts the features, strongest first, that hold half of what position explains."""
    strongest = shares.clamp(min=0.0).sort(descending=True).values
    return int((strongest.cumsum(0) < strongest.sum() / 2).sum()) + 1


def comparison_cells(each: Comparison) -> list[str]:
    """Gives one comparison as it is printed."""
    smallest = f"{float(each.angles[0]):.1f}°", f"{float(each.random_angles[0]):.1f}°"
    mean = f"{float(each.angles.mean()):.1f}°", f"{float(each.random_angles.mean()):.1f}°"
    return [f"{each.dims[0]}, {each.dims[1]}", *smallest, *mean, *_overlaps(each)]


def _overlaps(each: Comparison) -> tuple[str, str]:
    return f"{each.overlap:.3f}", f"{each.random_overlap.mean:.3f}"
