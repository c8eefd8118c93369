"""Traces of runs that no search of ours made."""

from collections.abc import Sequence
from math import nan

import numpy as np

from regard.config import DecodeSettings
from regard.trace.grown import KEPT, OPEN
from regard.trace.look import Look
from regard.trace.trace import Step, Trace
from regard.trace.tree import ROOT, Tree


def make_given(
    looks: tuple[Look, ...],
    source: Sequence[str],
    read: Sequence[str],
    steps: Sequence[Step] | None = None,
    text: str = "",
    output: str = "",
) -> Trace:
    """Makes a trace of one path: what is not known of it is not a number."""
    _check(looks, {"encoder": (source, source), "decoder": (read, read), "cross": (read, source)})
    said = [Step(piece, nan, nan, ()) for piece in [*read[1:], "…"][: len(read)]] if steps is None else list(steps)
    tree = one_path([step.piece for step in said], [step.log_prob for step in said])
    settings = DecodeSettings(method="greedy")
    rest = (tuple(source), tuple(read), tuple(said), looks, (), tree, tree.best)
    return Trace(text, output, "", "", settings, *rest)


def one_path(pieces: Sequence[str], gains: Sequence[float]) -> Tree:
    """Makes a tree that is a trunk; its tokens are counted, since it is not known what numbers they had."""
    n = len(pieces)
    fates = np.array([KEPT] * (n - 1) + [OPEN] * min(n, 1), dtype=np.int8)
    parents, tokens = np.arange(ROOT, n - 1), np.arange(n)
    return Tree(parents, tokens, np.array(gains, dtype=float), fates, dict(enumerate(pieces)), n - 1, 1.0)


def _check(looks: tuple[Look, ...], sides: dict[str, tuple[Sequence[str], Sequence[str]]]) -> None:
    """Refuses tokens that are not as many as the rows and columns."""
    for look in looks:
        (_, queries, keys), (rows, columns) = look.sizes, sides[look.kind]
        if (len(rows), len(columns)) != (queries, keys):
            raise ValueError(
                f"there must be one token for each query and key of {look}, got {len(rows)} and {len(columns)} tokens"
            )
