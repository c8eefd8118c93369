"""Position encodings: the table of schemes."""

from collections.abc import Callable
from functools import partial

from regard.position.absolute import Grid, HalfWave, Index, Learned, NoPosition, Normalised, Sinusoidal, Turns
from regard.position.contract import OffsetBias, Position
from regard.position.relative import T5, ALiBi, Difference, Rotary, Shaw

__all__ = [
    "POSITION",
    "T5",
    "ALiBi",
    "Difference",
    "Grid",
    "HalfWave",
    "Index",
    "Learned",
    "NoPosition",
    "Normalised",
    "OffsetBias",
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
