"""A stream as a sum of means: of all tokens, of each place, of each sentence, of each word, and what is left."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.study.groups import group_means, pooled
from regard.trace.stream import Tokens

PARTS = ("mean", "position", "context", "word", "rest")


@dataclass(frozen=True, eq=False)
class Shares:
    """How large the parts are at one point of a stream.

    `variance` is the share of `Σ |h − mean|²` of position, context, word and rest, which add up to 1; `by_chance` is
    what the first three get where their labels are shuffled, and `after_words` what position gets where words come
    first. `sizes` are root mean square lengths of all five parts, and `cosines` the means over all tokens of the
    cosines between them.
    """

    point: str
    variance: Float[Tensor, "4"]
    by_chance: Float[Tensor, "3"]
    after_words: float
    sizes: Float[Tensor, "5"]
    cosines: Float[Tensor, "5 5"]


def split_means(x: Float[Tensor, "N D"], tokens: Tokens) -> Float[Tensor, "5 N D"]:
    """Gives the parts, in float64, which add up to x.

    `h = μ + p_t + c_s + w_v + rest`: μ is the mean of all tokens, `p_t` the mean of `h − μ` at place t, `c_s` the mean
    of what is left in sentence s, `w_v` that of what is left then for the piece v. Each part is the projection of what
    is left on the groups, so the squared lengths of the four last add up to that of `h − μ`. Places and pieces that
    occur too seldom share one group. Context is the mean over a sequence, as in arXiv:2310.04861.
    """
    x = x.double()
    parts = [x.mean(0).expand_as(x)]
    left = x - parts[0]
    for groups in labels(tokens):
        parts.append(group_means(left, groups)[groups])
        left = left - parts[-1]
    return torch.stack([*parts, left])


def labels(tokens: Tokens) -> tuple[Int[Tensor, " N"], Int[Tensor, " N"], Int[Tensor, " N"]]:
    """Gives the groups of each token: its place, its sentence, its piece."""
    return pooled(tokens.positions), pooled(tokens.sentences, 1), pooled(tokens.ids)


def measure(point: str, parts: Float[Tensor, "5 N D"], tokens: Tokens, seed: int) -> Shares:
    """Measures the parts, and what groups without meaning would have got in their place."""
    squares = parts.square().sum((1, 2))
    total = squares[1:].sum()
    chance = torch.Generator().manual_seed(seed)
    by_chance = []
    for n, groups in enumerate(labels(tokens), start=1):
        left = parts[n:].sum(0)
        shuffled = groups[torch.randperm(len(groups), generator=chance)]
        by_chance.append(group_means(left, shuffled)[shuffled].square().sum() / total)
    places, _, words = labels(tokens)
    left = parts[1:].sum(0)
    left = left - group_means(left, words)[words]
    after_words = float(group_means(left, places)[places].square().sum() / total)
    units = torch.nn.functional.normalize(parts, dim=-1)
    cosines = torch.einsum("pnd,rnd->pr", units, units) / parts.shape[1]
    sizes = (squares / parts.shape[1]).sqrt()
    return Shares(point, squares[1:] / total, torch.stack(by_chance), after_words, sizes, cosines)
