"""A small network that tells a corpus from noise made of it, and how much of the corpus is such noise.

The corpus is a mixture of good pairs and noise, and nothing says which is which. How much of each kind of noise is in
it follows from the places where made noise is frequent: there the corpus has at least its own noise, and hardly
anything else ("best bin estimation"); so much of what looks most like noise is taken out of the examples of good pairs,
and the network learns again (Garg et al. 2021, arxiv.org/abs/2111.00980). The classes' shares in the corpus are then
estimated from the network's answers (Saerens et al. 2002), which makes them posteriors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.shapes import Array, Bool, Float, Int

HIDDEN = 48
EPOCHS = 4
FEWEST_STEPS = 500  # of training, whatever the number of examples
BATCH = 512
RATE = 2e-3
DECAY = 1e-4
ROUNDS = 2  # of taking noise out of the examples
CLIP = 6.0  # standard deviations of a feature
BINS = np.linspace(0.02, 0.9, 45)  # shares of the made noise
SURE = 1.64  # standard errors that are added to an estimate, so that a small bin is not believed
EM_STEPS = 200
SMALLEST = 1e-4  # share of a class in a corpus


@dataclass(frozen=True, eq=False)
class NoiseClassifier:
    """Features to the posteriors of "as it should be" and of each kind of noise."""

    mean: Float[Array, " F"]
    scale: Float[Array, " F"]
    weights_1: Float[Array, "F D"]
    bias_1: Float[Array, " D"]
    weights_2: Float[Array, "D K"]
    bias_2: Float[Array, " K"]
    lift: Float[Array, " K"]  # share of each class in the corpus, over that in the examples

    def posteriors(self, features: Float[Array, "B F"]) -> Float[Array, "B K"]:
        scaled = np.clip((features - self.mean) / self.scale, -CLIP, CLIP)
        chances = _softmax(np.maximum(scaled @ self.weights_1 + self.bias_1, 0) @ self.weights_2 + self.bias_2)
        chances = chances * self.lift
        return chances / chances.sum(1, keepdims=True)


@dataclass(frozen=True)
class ClassifierFit:
    """A classifier, and the share of each kind of noise that it finds in the corpus."""

    classifier: NoiseClassifier
    shares: tuple[float, ...]


def fit_classifier(corpus: Float[Array, "B F"], noise: Sequence[Float[Array, "_ F"]], seed: int) -> ClassifierFit:
    """Learn from pairs of the corpus, of which an unknown part is noise, and from noise of each kind."""
    rng = np.random.default_rng(seed)
    features = np.concatenate([corpus, *noise])
    labels = np.repeat(np.arange(len(noise) + 1), [len(corpus), *map(len, noise)])
    half = rng.integers(0, 2, len(labels)).astype(bool)
    used = np.ones(len(labels), bool)
    answers = np.zeros((len(labels), len(noise) + 1))
    for last in [*[False] * ROUNDS, True]:
        for own in (half, ~half):  # each half is judged by a network that has learned from the other
            answers[own] = _train(features[used & ~own], labels[used & ~own], rng).posteriors(features[own])
        used = used if last else _without_noise(answers, labels)
    base = np.bincount(labels[used], minlength=len(noise) + 1) / np.count_nonzero(used)
    shares = class_shares(answers[labels == 0], base)
    found = _train(features[used], labels[used], rng)
    return ClassifierFit(replace(found, lift=shares / base), tuple(shares[1:].tolist()))


def _without_noise(answers: Float[Array, "B K"], labels: Int[Array, " B"]) -> Bool[Array, " B"]:
    """Mark all examples but those pairs of the corpus that look most like noise, as many as there must be."""
    used = np.ones(len(labels), bool)
    corpus = np.flatnonzero(labels == 0)
    for kind in range(1, answers.shape[1]):
        share = least_share(answers[corpus, kind], answers[labels == kind, kind])
        n = int(share * len(corpus))
        used[corpus[np.argsort(-answers[corpus, kind], kind="stable")[:n]]] = False
    return used


def least_share(corpus: Float[Array, " _"], noise: Float[Array, " _"]) -> float:
    """Return at most what share of the corpus can be noise whose scores are distributed like these."""
    falling, rising = np.sort(noise)[::-1], np.sort(corpus)
    limits = falling[(BINS * len(falling)).astype(int)]
    in_noise = (noise[:, None] >= limits).mean(0)
    in_corpus = 1 - np.searchsorted(rising, limits) / len(rising)
    error = np.sqrt(in_corpus * (1 - in_corpus) / len(corpus))
    return float(min(1.0, ((in_corpus + SURE * error) / in_noise).min()))


def class_shares(answers: Float[Array, "B K"], base: Float[Array, " K"]) -> Float[Array, " K"]:
    """Return the shares of the classes by EM, given posteriors under other shares."""
    shares = base
    for _ in range(EM_STEPS):
        chances = answers * (shares / base)
        shares = np.maximum((chances / chances.sum(1, keepdims=True)).mean(0), SMALLEST)
        shares = shares / shares.sum()
    return shares


def _train(features: Float[Array, "B F"], labels: Int[Array, " B"], rng: np.random.Generator) -> NoiseClassifier:
    """Train by Adam with a falling rate."""
    n_features, n_classes = features.shape[1], int(labels.max()) + 1
    mean, scale = features.mean(0), features.std(0) + 1e-6
    inputs = np.clip((features - mean) / scale, -CLIP, CLIP).astype(np.float32)
    shapes = ((n_features, HIDDEN), (HIDDEN,), (HIDDEN, n_classes), (n_classes,))
    values: list[Array] = [
        rng.normal(0, shape[0] ** -0.5 if len(shape) == 2 else 0.0, shape).astype(np.float32) for shape in shapes
    ]
    first: list[Array] = [np.zeros_like(each) for each in values]
    second: list[Array] = [np.zeros_like(each) for each in values]
    per_epoch, step = -(-len(inputs) // BATCH), 0
    n_epochs = max(EPOCHS, -(-FEWEST_STEPS // per_epoch))
    n_steps = n_epochs * per_epoch
    for _ in range(n_epochs):
        order = rng.permutation(len(inputs))
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            step += 1
            rate = RATE * (1 - (step - 1) / n_steps)
            for i, gradient in enumerate(_gradients(values, inputs[some], labels[some])):
                first[i] = 0.9 * first[i] + 0.1 * gradient
                second[i] = 0.999 * second[i] + 0.001 * gradient**2
                update = first[i] / (1 - 0.9**step) / (np.sqrt(second[i] / (1 - 0.999**step)) + 1e-8)
                values[i] = values[i] * (1 - rate * DECAY) - rate * update
    return NoiseClassifier(mean, scale, values[0], values[1], values[2], values[3], np.ones(n_classes))


def _gradients(
    values: Sequence[Float[Array, "..."]], inputs: Float[Array, "B F"], labels: Int[Array, " B"]
) -> list[Float[Array, "..."]]:
    weights_1, bias_1, weights_2, bias_2 = values
    hidden = np.maximum(inputs @ weights_1 + bias_1, 0)
    error = _softmax(hidden @ weights_2 + bias_2)
    error[np.arange(len(labels)), labels] -= 1
    error /= len(labels)
    below = (error @ weights_2.T) * (hidden > 0)
    return [inputs.T @ below, below.sum(0), hidden.T @ error, error.sum(0)]


def _softmax(logits: Float[Array, "B K"]) -> Float[Array, "B K"]:
    chances = np.exp(logits - logits.max(1, keepdims=True))
    return chances / chances.sum(1, keepdims=True)
