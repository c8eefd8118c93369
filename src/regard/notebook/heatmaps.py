"""Heatmaps by the name that readers of Dive into Deep Learning know."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.notebook.needs import check_installed


def show_heatmaps(
    matrices: Any,
    xlabel: str,
    ylabel: str,
    titles: Sequence[str] | None = None,
    figsize: tuple[float | int, float | int] | None = None,
    cmap: str = "Reds",
) -> None:
    """Shows matrices of shape (rows, columns, queries, keys), tensors or arrays, a title above each column.

    As in the book, but all in one scale of colours. `regard.plot.heatmap_rows.draw_heatmaps` gives the figure itself.
    """
    numbers = _checked(matrices)
    check_installed("heatmaps", "matplotlib", "IPython")
    import matplotlib as mpl
    from IPython.display import display

    from regard.plot.heatmap_rows import draw_heatmaps

    if cmap not in mpl.colormaps:
        raise ValueError(f"cmap must be one of matplotlib's, such as Reds, Blues or viridis, got {cmap!r}")
    display(draw_heatmaps(numbers, xlabel, ylabel, titles, figsize, cmap))


def _checked(matrices: Any) -> Float[np.ndarray, "R C Q K"]:
    """Gives the numbers, or says what shape they have instead."""
    if isinstance(matrices, Tensor):
        matrices = matrices.detach().cpu().double().numpy()
    numbers = np.asarray(matrices, dtype=np.float64)
    if numbers.ndim != 4 or 0 in numbers.shape:
        raise ValueError(f"matrices must have the shape (rows, columns, queries, keys), got {numbers.shape}")
    return numbers
