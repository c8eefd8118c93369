"""What the page about the stream as a sum of means says."""

from regard.study.mean_split import MeanSplitStudy, heads_table, scores_table, shares_table, top_pairs
from regard.study.page import Page
from regard.study.stream_parts import PARTS


def mean_split_page(study: MeanSplitStudy) -> Page:
    """Tells the question, the method, and what was found."""
    return Page(
        "What is the stream made of in deeper layers?",
        "At the embedding a vector is a word and a position; above, layers have mixed them. Means take them apart "
        "again at any layer: global mean, position mean, context, word, rest. The split is carried exactly into the "
        "scores of every attention, so that each score is a sum over pairs of parts (S7.3).",
        _method(study),
        [shares_table(study), scores_table(study), heads_table(study)] if study.layers else [shares_table(study)],
        f"Shares of the variance along the streams of {study.model}, and the share of each head's scores that each "
        "pair of parts carries",
        [*(_stack(study, stack) for stack in study.shares), *_scores(study)],
    )


def _method(study: MeanSplitStudy) -> list[str]:
    tokens = " and ".join(f"{n:,} tokens of the {stack}" for stack, n in study.n_tokens.items())
    return [
        f"{study.n_pairs} pairs under teacher forcing, {tokens}, begin and end of sentences included.",
        "h = μ + p_t + c_s + w_v + rest. μ is the mean of all tokens, p_t the mean of h − μ at place t; c_s, the "
        "context, is the mean of what is left over the sentence s (arXiv:2310.04861), w_v that of what is then left "
        "for the piece v. Each is a projection, so the four squared lengths add up to that of h − μ. The order "
        "matters: what place and word share, as in a full stop at the end, goes to the place. Places and pieces that "
        "occur fewer than 5 times share one group. Many small groups explain something by chance: the same with "
        f"shuffled labels stands in brackets (seed {study.seed}).",
        "A norm before a layer is affine once its own mean and deviation are known; biases go with the mean. Queries "
        "and keys of the parts add up to the layer's own, and the products of all pairs to the score; how far they are "
        "off is the table's last column.",
        "A softmax feels only differences between keys: scores are taken without their mean over the keys that may be "
        "seen. The share of a pair is Σ term · score / Σ score²; shares add up to 1, and may be below 0.",
    ]


def _stack(study: MeanSplitStudy, stack: str) -> str:
    first, last = study.shares[stack][0], study.shares[stack][-1]
    told = [
        f"{part} {float(one):.0%} → {float(other):.0%}"
        for part, one, other in zip(PARTS[1:], first.variance, last.variance, strict=True)
    ]
    chance = ", ".join(f"{part} {float(one):.0%}" for part, one in zip(PARTS[1:4], last.by_chance, strict=True))
    after = f"{first.after_words:.1%} → {last.after_words:.1%}"
    return (
        f"{stack}, from the embedding to the last layer: {', '.join(told)} of the variance (by chance: {chance}). "
        f"Where words are taken first, position gets {after}."
    )


def _scores(study: MeanSplitStudy) -> list[str]:
    if not study.layers:
        return ["Scores of this attention are not linear in queries and keys: they are no sums over pairs of parts."]
    lines = []
    for layer in study.layers:
        (name, share), (other, second) = top_pairs(layer, 2)
        lines.append(f"`{layer.kind}:{layer.layer}`: {name} carries {share:.0%} of the scores, {other} {second:.0%}.")
    worst = max(layer.error for layer in study.layers)
    return [*lines, f"The terms add up to the scores within {worst:.0e} of the largest, in the model's float32."]
