"""The linear map that takes the code of a place to that of the place some steps on, found and shown at work (S6.4)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.position.sinusoidal import shift_matrix
from regard.study.laws import View, pairs_at, step_axis


@dataclass(frozen=True, eq=False)
class Moved:
    """A map, and what it makes of one code: `matrix @ before` is `moved`, and should be `after`."""

    exact: bool  # by its formula, or else fitted to all places
    matrix: Float[Tensor, "W W"]
    place: int
    before: Float[Tensor, " W"]
    moved: Float[Tensor, " W"]
    after: Float[Tensor, " W"]


def find_shift(view: View, steps: int, place: int, base: float | None = None) -> Moved | None:
    """Moves the place nearest to the wanted one; None where there are no codes, or no two places so far apart.

    With a base the codes are sinusoidal, and the map is known; else it is fitted by least squares.
    """
    start, end = pairs_at(view.places, step_axis(view.places), steps)
    if view.size() == 0.0 or not len(start):
        return None
    width = view.codes.shape[1]
    exact = None if base is None or width % 2 else shift_matrix(steps, width, base)
    # Codes may have dependent features, so the solver must handle any rank.
    fitted = torch.linalg.lstsq(view.codes[start], view.codes[end], driver="gelsd").solution.T
    matrix = fitted if exact is None else exact
    nearest = int((start - place).abs().argmin())
    before, after = view.codes[start[nearest]], view.codes[end[nearest]]
    return Moved(exact is not None, matrix, int(start[nearest]), before, matrix @ before, after)
