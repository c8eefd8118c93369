"""Norms in recurrent cells and across batches: what is compared, how it is judged, and the finding at small scale."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.build import build_model
from regard.model.norm import BatchNorm
from regard.model.recurrent import GateNorm
from regard.study.norms import (
    QUICK,
    TASKS,
    NormTrial,
    figure,
    judge_in_training,
    measure,
    model_settings,
    part,
    run,
    tables,
    trials,
)
from regard.study.sequences import Copy, eval_batch, judge_tokens

CPU = torch.device("cpu")
TINY = replace(QUICK, rates=(1e-3, 1e-2), batches=(1, 3), longest=4, short=3, d_model=8, steps=2, rows=3, judged=7)


def made(trial, settings=TINY):
    torch.manual_seed(0)
    vocab_size = TASKS[trial.part].vocab_size
    return build_model(model_settings(trial, settings), (vocab_size, vocab_size))


def test_the_models_of_a_part_differ_in_their_norm_alone():
    plain, normalised = (made(NormTrial("states", norm, 1e-3, 3, 4)) for norm in ("none", "layer"))
    assert not [each for each in plain.modules() if isinstance(each, GateNorm)]
    assert len([each for each in normalised.modules() if isinstance(each, GateNorm)]) == 6  # 3 GRUs with 2 each
    layer, batch = (made(NormTrial("batches", norm, 1e-3, 3, 4)) for norm in ("layer", "batch"))
    assert {name: p.shape for name, p in layer.named_parameters()} == {n: p.shape for n, p in batch.named_parameters()}
    assert [each for each in batch.modules() if isinstance(each, BatchNorm)]


def test_the_statistics_of_a_batch_are_judged_as_in_training():
    src, tgt = TASKS["batches"].draw(np.random.default_rng(0), 6, 3)
    for norm, same in (("layer", True), ("batch", False)):
        model = made(NormTrial("batches", norm, 1e-3, 3, 3)).eval()
        alone, _ = judge_tokens(model, [eval_batch(src, tgt)])
        by_batch = judge_in_training(model, [eval_batch(src[:3], tgt[:3]), eval_batch(src[3:], tgt[3:])])
        assert (by_batch == pytest.approx(alone, rel=1e-5)) == same and not model.training


def test_every_rate_and_size_is_measured_with_each_norm():
    study = run(replace(TINY, n_seeds=2), CPU)
    assert [each.trial for each in study.reports] == list(trials(TINY))
    assert [each.trial.lr for each in part(study, "states", "layer")] == [1e-3, 1e-2]
    assert [each.trial.rows for each in part(study, "batches", "batch")] == [1, 3]
    assert study.reports[0].loss.n == 2 and study.blind["batches"] == pytest.approx(np.log([8, 7, 6]).mean())
    found = tables(study)
    assert [found[name].row_count for name in ("states", "batches")] == [2, 2]
    assert len(figure(study).axes) == 2


def test_a_large_rate_is_better_borne_with_a_norm_in_the_cells(monkeypatch):
    monkeypatch.setitem(TASKS, "states", Copy(n_symbols=6))
    small = replace(TINY, d_model=16, steps=60, judged=32)
    plain, normalised = (measure(NormTrial("states", norm, 1e-1, 16, 3), 0, small, CPU) for norm in ("none", "layer"))
    assert normalised.loss < plain.loss


def test_batches_of_one_text_spoil_batch_norm(monkeypatch):
    monkeypatch.setitem(TASKS, "batches", Copy(n_symbols=4))
    small = replace(TINY, d_model=16, steps=80, judged=16)
    layer, batch = (measure(NormTrial("batches", norm, 3e-3, 1, 3), 0, small, CPU) for norm in ("layer", "batch"))
    assert layer.loss < batch.loss and batch.in_training < batch.loss


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 0}, "must be 1 or more, got 0, 1 and"),
        ({"batches": (4, 0)}, r"must be 1 or more, got .*\(4, 0\)"),
        ({"rates": (1e-3, -1.0)}, r"must be more than 0, got \(0.001, -1.0\)"),
    ],
)
def test_settings_with_which_nothing_is_measured_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        run(replace(TINY, **changes), CPU)
