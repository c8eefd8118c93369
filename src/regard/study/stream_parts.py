"""The residual stream as a sum of means, and what words and positions contribute to it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.model.layers import Embedding
from regard.position import POSITION
from regard.shapes import Float, Int
from regard.trace.replay import to_cpu
from regard.trace.residual import Tokens

MIN_GROUP = 5  # tokens that a group needs for a mean of its own


def pooled(labels: Int[Tensor, " N"], least: int = MIN_GROUP) -> Int[Tensor, " N"]:
    """Number groups from 0; those with too few tokens become one, so that no token is its own mean."""
    _, groups, counts = labels.unique(return_inverse=True, return_counts=True)
    rare = counts[groups] < least
    return torch.where(rare, torch.full_like(groups, len(counts)), groups).unique(return_inverse=True)[1]


def group_means(x: Float[Tensor, "N D"], groups: Int[Tensor, " N"]) -> Float[Tensor, "G D"]:
    """Return the mean of each group, in the order of their numbers."""
    sums = x.new_zeros(int(groups.max()) + 1, x.shape[1]).index_add(0, groups, x)
    return sums / torch.bincount(groups)[:, None]


def joint_means(
    x: Float[Tensor, "N D"], one: Int[Tensor, " N"], other: Int[Tensor, " N"], rounds: int = 50
) -> tuple[Float[Tensor, "G D"], Float[Tensor, "G2 D"]]:
    """Return the least-squares fit of x by a sum of two groupings, each free of what the other explains.

    Means are taken in turn of what the other grouping leaves, until nothing changes; plain means would mix the two,
    as full stops make the last positions alike.
    """
    x = x - x.mean(0)
    of_other = x.new_zeros(int(other.max()) + 1, x.shape[1])
    of_one = group_means(x, one)
    for _ in range(rounds):
        of_other = group_means(x - of_one[one], other)
        of_one = group_means(x - of_other[other], one)
    return of_one, of_other


def explained(x: Float[Tensor, "N D"], groups: Int[Tensor, " N"]) -> Float[Tensor, " D"]:
    """Return for each feature `η² = Σ_g n_g (mean_g − mean)² / Σ (x − mean)²`; 0 where a feature never changes."""
    x = x.double() - x.double().mean(0)
    between = group_means(x, groups)[groups].square().sum(0)
    total = x.square().sum(0)
    return torch.where(total > 0, between / total.clamp(min=torch.finfo(total.dtype).tiny), torch.zeros_like(total))


def corrected(eta: Float[Tensor, " D"], n_tokens: int, n_groups: int) -> Float[Tensor, " D"]:
    """Subtract what random groups would explain: `1 − (1 − η²)(N − 1)/(N − G)`, 0 on average by chance."""
    if n_tokens <= n_groups:
        raise ValueError(f"there must be more tokens than groups, got {n_tokens} and {n_groups}")
    return 1 - (1 - eta) * (n_tokens - 1) / (n_tokens - n_groups)


PARTS = ("mean", "position", "context", "word", "rest")


@dataclass(frozen=True, eq=False)
class VarianceShares:
    """The size of the parts at one point of a stream.

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
    """Return the parts, in float64, which add up to x.

    `h = μ + p_t + c_s + w_v + rest`: μ is the mean of all tokens, `p_t` the mean of `h − μ` at position t, `c_s` the
    mean of what is left in sentence s, `w_v` that of what is left then for the token v. Each part is the projection of
    what is left on the groups, so the squared lengths of the last four add up to that of `h − μ`. Rare positions and
    tokens share one group. Context is the mean over a sequence, as in arXiv:2310.04861.
    """
    x = x.double()
    parts = [x.mean(0).expand_as(x)]
    left = x - parts[0]
    for groups in labels(tokens):
        parts.append(group_means(left, groups)[groups])
        left = left - parts[-1]
    return torch.stack([*parts, left])


def labels(tokens: Tokens) -> tuple[Int[Tensor, " N"], Int[Tensor, " N"], Int[Tensor, " N"]]:
    """Return the groups of each token: its position, its sentence, its id."""
    return pooled(tokens.positions), pooled(tokens.sentences, 1), pooled(tokens.ids)


def measure(point: str, parts: Float[Tensor, "5 N D"], tokens: Tokens, seed: int) -> VarianceShares:
    """Measure the parts, and what random groups would get in their place."""
    squares = parts.square().sum((1, 2))
    total = squares[1:].sum()
    generator = torch.Generator().manual_seed(seed)
    by_chance = []
    for n, groups in enumerate(labels(tokens), start=1):
        left = parts[n:].sum(0)
        shuffled = groups[torch.randperm(len(groups), generator=generator)]
        by_chance.append(group_means(left, shuffled)[shuffled].square().sum() / total)
    positions, _, words = labels(tokens)
    left = parts[1:].sum(0)
    left = left - group_means(left, words)[words]
    after_words = float(group_means(left, positions)[positions].square().sum() / total)
    units = torch.nn.functional.normalize(parts, dim=-1)
    cosines = torch.einsum("pnd,rnd->pr", units, units) / parts.shape[1]
    sizes = (squares / parts.shape[1]).sqrt()
    return VarianceShares(point, squares[1:] / total, torch.stack(by_chance), after_words, sizes, cosines)


@torch.no_grad()
def word_vectors(embedding: Embedding, ids: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
    """Return tokens as they enter the stream without their position; concatenated codes are zeros."""
    vectors = _scaled(embedding, ids)
    return to_cpu((embedding.position.embed(vectors, _zeros(ids, vectors)) - _codes(embedding, vectors, ids * 0))[0])


@torch.no_grad()
def code_vectors(embedding: Embedding, positions: Int[Tensor, " N"]) -> Float[Tensor, "N D"] | None:
    """Return positions as they enter the stream, which is what a token of zeros becomes; None where nothing does."""
    vectors = _scaled(embedding, torch.zeros_like(positions))
    zeros = _zeros(positions, vectors)
    if embedding.position.embed(vectors, zeros) is vectors:
        return None
    return to_cpu(_codes(embedding, vectors, positions)[0])


def scheme_of(model: Any) -> str:
    """Return the name of a Transformer's position encoding: that of the tokens, else that of the heads."""
    names = {made: name for name, made in POSITION.items()}
    types = [type(part.position) for part in (model.src, model.encoder.layers[0].attention)]
    return next((names[each] for each in types if names.get(each, "none") != "none"), "none")


def _scaled(embedding: Embedding, ids: Tensor) -> Float[Tensor, "1 N D"]:
    device = embedding.table.weight.device
    return embedding.table(ids[None].to(device)) * embedding.table.embedding_dim**0.5


def _zeros(ids: Tensor, like: Tensor) -> Int[Tensor, "1 N"]:
    return torch.zeros_like(ids)[None].to(like.device)


def _codes(embedding: Embedding, vectors: Tensor, positions: Tensor) -> Tensor:
    return embedding.position.embed(torch.zeros_like(vectors), positions[None].to(vectors.device))
