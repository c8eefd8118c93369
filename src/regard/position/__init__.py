"""What depends on where a token stands: the table of position schemes."""

from collections.abc import Callable
from functools import partial

from regard.position.alibi import ALiBi
from regard.position.by_offset import ByOffset
from regard.position.contract import Position
from regard.position.difference import Difference
from regard.position.grid import Grid
from regard.position.half_wave import HalfWave
from regard.position.index import Index
from regard.position.learned import Learned
from regard.position.none import NoPosition
from regard.position.normalised import Normalised
from regard.position.rotary import Rotary
from regard.position.shaw import Shaw
from regard.position.sinusoidal import Sinusoidal
from regard.position.t5 import T5
from regard.position.turns import Turns

__all__ = [
    "POSITION",
    "T5",
    "ALiBi",
    "ByOffset",
    "Difference",
    "Grid",
    "HalfWave",
    "Index",
    "Learned",
    "NoPosition",
    "Normalised",
    "Position",
    "Rotary",
    "Shaw",
    "Sinusoidal",
    "Turns",
]

POSITION: dict[str, Callable[..., Position]] = {
    "none": NoPosition,
    "index": Index,
    "normalised": Normalised,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "half_wave": HalfWave,
    "difference": Difference,
    "shaw": Shaw,
    "t5": T5,
    "alibi": ALiBi,
    "rotary": Rotary,
    "grid_2d": partial(Grid, n_axes=2),
    "grid_3d": partial(Grid, n_axes=3),
    "turns": Turns,
}
