"""Longer texts than were learned from: the tasks, what is judged, and which schemes end."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.build import build_model
from regard.config import PartSettings
from regard.model import Seq2Seq
from regard.padding import EOS
from regard.position import POSITION
from regard.study.extrapolate import (
    FOLDS,
    TASKS,
    ExtrapolateSettings,
    LengthResult,
    TrainedEncoding,
    evaluate,
    make_settings,
    model_settings,
    run,
    schemes,
    summarise,
    train_scheme,
)
from regard.study.sequences import FIRST_SYMBOL, Chain, Copy, eval_batch, token_losses, training_batch

pytestmark = pytest.mark.filterwarnings("ignore:position 'index' with pre-norm is the same as none")

CPU = torch.device("cpu")
TINY = ExtrapolateSettings(longest=4, steps=2, rows=3, judged=5, n_seeds=2, d_model=16, d_ff=8, n_heads=2)


def draw(task, rows, length, seed=0):
    return task.draw(np.random.default_rng(seed), rows, length)


def test_a_chain_follows_its_table():
    task = Chain(n_symbols=3, sharpness=0.5)
    _, tgt = draw(task, rows=200, length=300)
    counts = np.zeros((3, 3, 3))
    np.add.at(counts, (tgt[:, :-2], tgt[:, 1:-1], tgt[:, 2:]), 1)
    often = counts.sum(axis=-1) > 2000
    assert often.sum() >= 5
    shares = counts[often] / counts[often].sum(axis=-1, keepdims=True)
    assert np.abs(shares - task.table[often]).max() < 0.05


def test_the_least_loss_of_a_chain_is_that_of_its_table():
    task = Chain(n_symbols=5)
    _, tgt = draw(task, rows=7, length=11)
    total = 0.0
    for row in tgt:
        total += 2 * np.log(5)
        total += sum(-np.log(task.table[a, b, c]) for a, b, c in zip(row, row[1:], row[2:], strict=False))
    assert task.least_loss(tgt) == pytest.approx(total / tgt.size)


def test_the_difficulty_of_a_chain_does_not_depend_on_length():
    task = Chain()
    losses = [task.least_loss(draw(task, 2000, length)[1][:, 2:]) for length in (20, 80)]
    inner = [(loss * n - 2 * np.log(task.n_symbols)) / (n - 2) for loss, n in zip(losses, (18, 78), strict=True)]
    assert inner[0] == pytest.approx(inner[1], rel=0.05)


def test_a_copy_is_the_source_without_repeats():
    src, tgt = draw(Copy(), rows=9, length=64)
    assert np.array_equal(src, tgt)
    assert all(len(set(row)) == 64 for row in src)
    with pytest.raises(ValueError, match="at most 80 symbols, got 81"):
        draw(Copy(), 1, 81)


@pytest.mark.parametrize("task", TASKS.values())
def test_texts_that_are_learned_from_are_at_most_as_long_as_said_and_their_ends_are_not_learned(task):
    batch = training_batch(task, np.random.default_rng(0), rows=50, longest=8)
    lengths = batch.tgt.token_mask.sum(dim=1)
    assert set(lengths.tolist()) <= set(range(4, 9))
    assert int(lengths.max()) == 8
    assert not (batch.tgt.token_mask & (batch.tgt.labels == EOS)).any()
    assert batch.tgt.n_tokens == int(lengths.sum())
    assert int(batch.tgt.labels.max()) < task.vocab_size


def test_losses_are_those_of_each_place():
    src, tgt = draw(Chain(n_symbols=3), rows=4, length=5)
    batch = eval_batch(src, tgt)
    logits = torch.full((4, 6, 3 + FIRST_SYMBOL), -1e9)
    logits[..., FIRST_SYMBOL] = np.log(0.25)
    logits[..., FIRST_SYMBOL + 1] = np.log(0.25)
    logits[..., FIRST_SYMBOL + 2] = np.log(0.5)
    losses, right = token_losses(logits, batch)
    expected = np.where(tgt == 2, np.log(2), np.log(4)).mean(axis=0)
    torch.testing.assert_close(losses, torch.tensor(expected, dtype=torch.float32))
    torch.testing.assert_close(right, torch.tensor((tgt == 2).mean(axis=0), dtype=torch.float32))


def test_a_model_that_knows_the_rule_has_the_least_loss():
    task = Chain(n_symbols=4)

    class Knower(Seq2Seq):
        features = start = step = None  # nobody asks

        def __init__(self):
            super().__init__()
            self.dummy = torch.nn.Parameter(torch.zeros(()))

        def forward(self, batch):
            read = (batch.tgt.inputs - FIRST_SYMBOL).clamp(min=0)
            before = torch.nn.functional.pad(read[:, :-1], (1, 0))
            known = torch.tensor(task.table).log()[before, read]
            known[:, :2] = np.log(1 / 4)
            return torch.nn.functional.pad(known, (FIRST_SYMBOL, 0), value=-1e9)

    judged = evaluate(Knower(), task, 12, 30)
    assert judged.loss == pytest.approx(judged.least, rel=1e-5)
    assert len(judged.by_position) == 12


def test_every_scheme_of_the_table_takes_part_or_is_refused_by_the_builder():
    taken = {part.name for part in schemes(8).values()}
    left_out = set(POSITION) - taken
    for name in left_out:
        with pytest.raises(ValueError, match="no meaning in a text model"):
            build_model(model_settings(TINY, PartSettings(name)), (12, 12))
    for part in schemes(8).values():
        build_model(model_settings(TINY, part), (12, 12))


def test_a_norm_before_each_sub_layer_takes_the_index_away():
    batch = training_batch(Chain(), np.random.default_rng(0), rows=3, longest=8)
    said = []
    for name in ("none", "index"):
        torch.manual_seed(0)
        said.append(build_model(model_settings(TINY, PartSettings(name)), (9, 9)).double()(batch))
    torch.testing.assert_close(*said)


def test_a_learned_table_ends_where_learning_did_and_the_others_go_on():
    settings = replace(TINY, steps=1)
    ended = train_scheme("learned", schemes(4)["learned"], 0, settings, CPU)
    assert [each.length for each in ended.results] == [4]
    assert set(ended.refused) == {8, 12, 16}
    assert "must be below 5, the end of the table" in ended.refused[8]
    for name in ("half_wave", "t5"):
        assert [each.length for each in train_scheme(name, schemes(4)[name], 0, settings, CPU).results] == [
            4,
            8,
            12,
            16,
        ]


def judged(length, loss, accuracy=0.5):
    return LengthResult(length, loss, accuracy, 0.25, [loss] * length)


def test_means_spreads_and_ratios():
    runs = [
        TrainedEncoding("a", 0, [judged(4, 1.0), judged(8, 2.0), judged(12, 3.0), judged(16, 4.0)], {}),
        TrainedEncoding("a", 1, [judged(4, 2.0), judged(8, 8.0), judged(12, 3.0), judged(16, 4.0)], {}),
        TrainedEncoding("b", 0, [judged(4, 1.0)], {8: "no", 12: "no", 16: "no"}),
        TrainedEncoding("b", 1, [judged(4, 1.0)], {8: "no", 12: "no", 16: "no"}),
    ]
    study = summarise(runs, TINY, {"seed": 0})
    first, second = study.schemes
    assert (first.lengths[1].loss.mean, first.lengths[1].ratio.mean) == (5.0, 3.0)
    assert first.lengths[1].loss.std == pytest.approx(np.std([2, 8], ddof=1))
    assert first.by_position == [4.0] * 16
    assert [length.loss is None for length in second.lengths] == [False, True, True, True]
    assert (second.refused, first.refused) == ("no", None)
    assert study.least == {4: 0.25, 8: 0.25, 12: 0.25, 16: 0.25}


def test_the_study_trains_each_scheme_with_each_seed():
    names = []
    study = run(
        ["alibi", "learned"], TINY, CPU, lambda jobs, *_: [names.append((job[0], job[2])) or job for job in jobs]
    )
    assert names == [("alibi", 0), ("alibi", 1), ("learned", 0), ("learned", 1)]
    assert [scheme.name for scheme in study.schemes] == ["alibi", "learned"]
    one, same, other = (train_scheme("alibi", schemes(4)["alibi"], seed, TINY, CPU) for seed in (0, 0, 1))
    assert one.results == same.results
    assert one.results[0].loss != other.results[0].loss
    means = [(a.loss + b.loss) / 2 for a, b in zip(one.results, other.results, strict=True)]
    assert [length.loss.mean for length in study.schemes[0].lengths] == pytest.approx(means)
    assert len(study.schemes[0].lengths) == len(FOLDS)


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match="unknown scheme 'alibu': did you mean 'alibi'"):
        run(["alibu"], TINY, CPU)
    with pytest.raises(ValueError, match="unknown task 'chian'"):
        make_settings("chian", 16, None, 1, 0, False)
    with pytest.raises(ValueError, match="got 2, 2 and 2"):
        run([], replace(TINY, longest=2), CPU)
    with pytest.raises(ValueError, match=r"length must be 20 or less.*got 21"):
        run([], replace(TINY, task="copy", longest=21), CPU)


@pytest.mark.slow
def test_a_chain_is_learned_and_distances_carry_further_than_learned_places():
    settings = make_settings("chain", 16, None, 1, 0, False)
    study = run(["index", "t5"], settings, CPU)
    index, t5 = study.schemes
    assert t5.lengths[0].loss.mean < 1.2 * study.least[16]
    assert t5.lengths[-1].ratio.mean < index.lengths[-1].ratio.mean
