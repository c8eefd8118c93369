"""Dual cross-entropy: what two models, one for each direction, make of a pair (Junczys-Dowmunt 2018, W18-6478).

A pair that both find likely, and about equally likely, is good: |a − b| + (a + b) / 2 is small, where a and b are the
mean −log p of a token given the other side. What is small enough depends on the models and on the text; so the scores
are evidence for a second classifier, which learns from a sample what they are for pairs and for noise.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.clean.classifier import ClassifierFit, NoiseClassifier, fit_classifier
from regard.clean.judging import Judgement
from regard.clean.learning import HALVES, CorpusModel, open_evidence, usable
from regard.clean.noise import KINDS, Texts, make_noise
from regard.pipeline.translator import Translator
from regard.search.scoring import pair_batches, token_costs
from regard.shapes import Array, Bool, Float

READ = 1200  # pairs of each half by which the second classifier learns; of each kind of noise a quarter
SURE = 0.03  # probability of noise, or of a pair, below which no model is asked
AT_ONCE = 2048  # pairs
MOST_TOKENS = 160  # of a side; longer pairs are not read, for a whole batch would wait for them


@dataclass(frozen=True, eq=False)
class DualModels:
    """A model and its reverse."""

    forward: Translator
    backward: Translator

    def __post_init__(self) -> None:
        there = self.forward.src_lang, self.forward.tgt_lang
        back = self.backward.tgt_lang, self.backward.src_lang
        if there != back:
            raise ValueError(
                f"the reverse model must translate from {there[1]} to {there[0]}, got one from {back[1]} to {back[0]}"
            )

    def costs(self, pairs: Sequence[Texts]) -> Float[Array, "pairs 2"]:
        """Return the mean −log p of a token, the end included, in either direction; NaN for a pair that is too long."""
        found = np.full((len(pairs), 2), np.nan)
        for place, translator in enumerate((self.forward, self.backward)):
            turned = [pair if place == 0 else pair[::-1] for pair in pairs]
            src = translator.tokenizer.encode_batch([one for one, _ in turned], "src")
            tgt = translator.tokenizer.encode_batch([other for _, other in turned], "tgt")
            most = min(MOST_TOKENS, translator.max_len)
            short = [i for i, both in enumerate(zip(src, tgt, strict=True)) if max(map(len, both)) <= most]
            for some, batch in pair_batches([src[i] for i in short], [tgt[i] for i in short]):
                sums = token_costs(translator.model, batch).double().sum(1).numpy()
                own = np.array([short[i] for i in some])
                found[own, place] = sums / np.array([len(tgt[i]) + 1 for i in own])
        return found


def dual(costs: Float[Array, "pairs 2"]) -> Float[Array, " pairs"]:
    """Return the dual conditional cross-entropy."""
    return np.abs(costs[:, 0] - costs[:, 1]) + costs.mean(1)


@dataclass(frozen=True, eq=False)
class SecondReader:
    """Models, and a classifier of what they and the first classifier say."""

    models: DualModels
    classifier: NoiseClassifier

    def read(self, judged: Judgement, everything: bool) -> Judgement:
        """Judge again what is in doubt, or all pairs that break no rule."""
        doubtful = (judged.noise > SURE) & (judged.noise < 1 - SURE)
        places = np.flatnonzero((judged.codes == 0) & (doubtful | everything))
        pairs = [(judged.lines[i].src, judged.lines[i].tgt) for i in places]
        costs = judged.costs.copy()
        costs[places] = self.models.costs(pairs)
        posteriors = judged.posteriors.copy()
        again = places[(doubtful & _is_known(costs))[places]]
        if len(again):
            features = second_features(judged.posteriors[again], costs[again])
            posteriors[again] = self.classifier.posteriors(features)
        return replace(judged, posteriors=posteriors, costs=costs)


def learn_to_reread(models: DualModels, model: CorpusModel, examples: Sequence[Sequence[Texts]]) -> SecondReader:
    """Learn from examples of either half what models say of pairs and of noise."""
    assert model.folder is not None, "a second reader needs a first"
    corpus: list[Array] = []
    noise: list[list[Array]] = [[] for _ in KINDS]
    for half in HALVES:
        evidence, classifier = open_evidence(model.folder, 1 - half), model.classifiers[1 - half]
        made = make_noise(examples[half][:READ], random.Random(model.settings.seed + half))
        left = [[pair for pair, _ in usable(model, made[kind])] for kind in KINDS]  # as the first classifier learned
        for texts, home in (
            (examples[half][:READ], corpus),
            *((some[: READ // 4], noise[kind]) for kind, some in enumerate(left)),
        ):
            for at in range(0, len(texts), AT_ONCE):
                some = texts[at : at + AT_ONCE]
                first = classifier.posteriors(evidence.measure(*zip(*some, strict=True)))
                costs = models.costs(some)
                known = _is_known(costs)
                home.append(second_features(first[known], costs[known]))
    fitted = fit_classifier(np.concatenate(corpus), [np.concatenate(parts) for parts in noise], model.settings.seed)
    # How frequent noise is, the first classifier knows better: it has seen many more pairs.
    noise_shares = np.array([model.shares[kind] for kind in KINDS])
    lift = np.append(1 - noise_shares.sum(), noise_shares) / examples_shares(fitted)
    return SecondReader(models, replace(fitted.classifier, lift=lift))


def examples_shares(fit: ClassifierFit) -> Float[Array, " K"]:
    """Return the share of each class among the examples of a classifier."""
    return np.array([1 - sum(fit.shares), *fit.shares]) / fit.classifier.lift


def second_features(
    posteriors: Float[Array, "pairs classes"], costs: Float[Array, "pairs 2"]
) -> Float[Array, "pairs _"]:
    """Return what the first classifier and the models say, in logarithms and in nats."""
    first = np.log(np.clip(posteriors, 1e-5, 1))
    both = np.stack([costs[:, 0], costs[:, 1], costs[:, 0] - costs[:, 1], dual(costs), costs.min(1), costs.max(1)], 1)
    return np.concatenate([first, both], 1)


def _is_known(costs: Float[Array, "pairs 2"]) -> Bool[Array, " pairs"]:
    return np.isfinite(costs[:, 0] + costs[:, 1])
