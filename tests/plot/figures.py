"""One of each figure, small and as large as they come, with Chinese words in all of them."""

import numpy as np

from regard.plot.beam_tree import BeamTree, draw_beam_tree
from regard.plot.head_maps import HeadWeights, draw_head_grid, draw_one_head, draw_term_maps
from regard.plot.head_values import HeadEffects, HeadEntropies, draw_entropy_map, draw_importance_map
from regard.plot.traces import StreamNorms, draw_norms
from regard.plot.words import draw_alignment, draw_head_lines, draw_word_attention

SRC = ["▁介绍", "一下", "西安", "。"]
TGT = ["▁Introduce", "▁Xi", "'", "an", "."]
LONG = [*"据的，$", "中国", "国家", "统计局", "百分之六点一", "$5", "▁and", "Statistics", "an_endless_identifier"]


def words(n):
    return [LONG[i % len(LONG)] for i in range(n)]


def weights(*shape, seed=0):
    x = np.exp(np.random.default_rng(seed).normal(size=shape) * 2)
    return x / x.sum(-1, keepdims=True)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def heads(kind, L, H, Q, K):
    return HeadWeights(kind, weights(L, H, Q, K), words(Q), words(K))


def tree(beam, n_steps, seed=0):
    """Plays a beam search with random chances over a few words, one of which ends."""
    rng = np.random.default_rng(seed)
    tokens, parents, totals, fates = [], [], [], []
    alive = [(None, 0.0)]
    for _ in range(n_steps):
        grown = [(total + gain, at) for at, total in alive for gain in np.log(weights(6, seed=int(rng.integers(99))))]
        grown = sorted(grown, key=lambda each: -each[0])[: 2 * beam]
        alive = []
        for total, parent in grown:
            token = "</s>" if rng.random() < 0.05 else LONG[rng.integers(len(LONG))]
            fate = "ended" if token == "</s>" else "kept" if len(alive) < beam else "dropped"
            if fate == "kept":
                alive.append((len(tokens), total))
            tokens.append(token), parents.append(parent), totals.append(total), fates.append(fate)
    return BeamTree(tokens, parents, np.array(totals), fates, alive[0][0])


def terms(n, Q):
    split = numbers(n, Q, Q)
    return draw_term_maps(
        [f"pair {i}: wavelength {7 * 2**i}" for i in range(n)], split, split.sum(0), words(Q), words(Q)
    )


def norms(n_layers):
    names = [f"{layer} {part}" for layer in range(n_layers) for part in ("self", "cross", "feed forward")]
    return StreamNorms("decoder", names, *np.abs(numbers(3, len(names))) + 1)


FIGURES = {
    "head_grid": lambda: draw_head_grid([HeadWeights("cross", weights(1, 2, 5, 4), TGT, SRC)], "介绍一下西安"),
    "one_head": lambda: draw_one_head(weights(5, 4), TGT, SRC, "介绍一下西安", entropy=True),
    "term_maps": lambda: draw_term_maps(["a"], numbers(1, 4, 4), numbers(4, 4), SRC, SRC, "西安"),
    "alignment": lambda: draw_alignment(weights(5, 4), SRC, TGT, [(0, 0), (2, 1)], [(0, 0)], [(2, 3)], "介绍一下西安"),
    "head_lines": lambda: draw_head_lines(weights(3, 5, 4), TGT, SRC, ["head 0", "head 1", "head 2"], "介绍一下西安"),
    "beam_tree": lambda: draw_beam_tree(tree(2, 4), "介绍一下西安"),
    "entropy_map": lambda: draw_entropy_map([HeadEntropies("西安", weights(2, 3), weights(2, 3))]),
    "importance_map": lambda: draw_importance_map([HeadEffects("西安", numbers(2, 3), numbers(2, 3))]),
    "norms": lambda: draw_norms([norms(2), norms(1)], "介绍一下西安"),
    "looked_at": lambda: draw_word_attention(weights(5, 4), SRC, TGT, "介绍一下西安。 → Introduce Xi'an."),
}
EXTREMES = {
    "one head of one word": lambda: draw_head_grid([heads("alignment", 1, 1, 1, 1)]),
    "a grid with words": lambda: draw_head_grid([heads("cross", 2, 4, 9, 13)]),
    "a grid of three kinds": lambda: draw_head_grid([heads(kind, 6, 8, 31, 24) for kind in ("a", "b", "c")]),
    "one weight": lambda: draw_one_head(weights(1, 1), ["a"], ["西安"], entropy=True),
    "one head of 200 words": lambda: draw_one_head(weights(200, 200), words(200), words(200), entropy=True),
    "one head of 20 words": lambda: draw_one_head(weights(20, 13), words(20), words(13)),
    "one term": lambda: terms(1, 3),
    "33 terms": lambda: terms(33, 10),
    "a long alignment": lambda: draw_alignment(weights(35, 80), words(80), words(35), [(44, 34)]),
    "lines of 16 heads": lambda: draw_head_lines(weights(16, 20, 9), words(20), words(9), words(16)),
    "a beam of 5": lambda: draw_beam_tree(tree(5, 30)),
    "a beam of 1": lambda: draw_beam_tree(tree(1, 1)),
    "entropies of 5 × 16": lambda: draw_entropy_map([HeadEntropies(k, weights(5, 16), weights(5, 16)) for k in "ab"]),
    "one entropy": lambda: draw_entropy_map([HeadEntropies("alignment", weights(1, 1), weights(1, 1))]),
    "effects of 5 × 16": lambda: draw_importance_map([HeadEffects("cross", numbers(5, 16), 9 * numbers(5, 16))]),
    "one effect": lambda: draw_importance_map([HeadEffects("alignment", numbers(1, 1))]),
    "norms of 12 layers": lambda: draw_norms([norms(12)]),
    "looked at, 100 words": lambda: draw_word_attention(weights(20, 100), words(100), words(20)),
    "looked at, one word": lambda: draw_word_attention(weights(1, 1), ["西安"], ["Xi'an"]),
}
