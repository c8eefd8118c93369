"""With and without attention: the models, what is judged, and the groups of lengths."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.batch import make_batch
from regard.build import build_model
from regard.padding import EOS
from regard.study.bottleneck import (
    CONTEXTS,
    QUICK,
    copies,
    figure,
    model_settings,
    run,
    tables,
    train_context,
    translations,
)
from regard.study.sequences import bundled_pairs, judge_tokens

CPU = torch.device("cpu")
TINY = replace(QUICK, longest=6, lengths=(2, 6, 9), d_model=8, steps=2, rows=3, judged=5, n_seeds=2, groups=3)


def test_the_models_differ_in_their_attention_alone():
    sizes = {}
    for context in CONTEXTS:
        torch.manual_seed(0)
        sizes[context] = {
            name: p.shape for name, p in build_model(model_settings(context, TINY), (9, 9)).named_parameters()
        }
    attention = {name for name in sizes["attention"] if name.startswith("attention.")}
    assert attention and sizes["last state"].keys() == sizes["attention"].keys() - attention


def test_copies_are_judged_at_the_lengths_that_were_trained():
    task = copies(TINY)
    model = train_context("last state", task, 0, TINY, CPU)
    assert [group.label for group in task.judge(model)] == ["2", "6"]
    lengths = {n for _ in range(20) for n in task.draw(np.random.default_rng(_)).src.lengths.tolist()}
    assert min(lengths) == 2 and max(lengths) == 7  # with EOS


def test_both_models_see_the_same_texts():
    task = copies(TINY)
    one, other = (task.draw(np.random.default_rng([0, 1])) for _ in range(2))
    assert one.src.ids.equal(other.src.ids) and one.tgt.inputs.equal(other.tgt.inputs)


def test_losses_are_of_real_tokens(monkeypatch):
    model = build_model(model_settings("last state", TINY), (6, 6))
    sure = 40.0 * torch.nn.functional.one_hot(torch.tensor(5), 6).float()
    monkeypatch.setattr(model, "forward", lambda batch: sure.expand(*batch.tgt.labels.shape, 6))
    loss, accuracy = judge_tokens(model, [make_batch([[4], [4]], [[5, 5, 5], [5, 4]])])
    assert EOS != 5 and accuracy == pytest.approx(4 / 7)
    assert loss == pytest.approx(3 / 7 * 40.0)


def test_a_vector_that_is_too_small_for_a_sentence_is_a_bottleneck():
    """After a few steps attention already loses less on long texts."""
    settings = replace(QUICK, longest=6, lengths=(2, 6), d_model=16, steps=80, rows=16, lr=2e-2)
    study = run(None, ("src", "tgt"), settings, CPU)
    free, fixed = ([group.loss.mean for group in context.groups] for context in study.contexts)
    assert fixed[1] - fixed[0] > 1.0, "a longer text must be harder"
    assert free[1] < fixed[1]


def test_texts_are_grouped_by_length_and_scored():
    study = run(bundled_pairs("zh", "en"), ("zh", "en"), replace(TINY, n_seeds=1), CPU)
    assert study.task == "translations" and [each.context for each in study.contexts] == list(CONTEXTS)
    groups = study.contexts[0].groups
    edges = [tuple(map(int, group.label.split("–"))) for group in groups]
    assert len(edges) == 3 and all(a <= b for a, b in edges) and edges == sorted(edges)
    assert all(group.bleu is not None and group.loss.n == 1 for group in groups)
    assert "BLEU" in tables(study)["lengths"].caption and len(figure(study).axes) == 3


def test_few_pairs_and_long_copies_are_refused():
    with pytest.raises(ValueError, match="40 sentence pairs or more, got 3"):
        translations([("a", "b")] * 3, ("src", "tgt"), TINY)
    with pytest.raises(ValueError, match="length must be 40 or less, as no symbol is copied twice, got 41"):
        run(None, ("src", "tgt"), replace(TINY, longest=41), CPU)
    with pytest.raises(ValueError, match="1 or more and width 2 or more, got 0, 2, 6 and 8"):
        run(None, ("src", "tgt"), replace(TINY, steps=0), CPU)
