"""Residual connections removed before training: the models, and how their tokens become alike with depth."""

from dataclasses import replace

import pytest
import torch

from regard.model.norm import Residual
from regard.study.no_residuals import NoResidual
from regard.study.residuals import QUICK, SYMBOLS, figure, make_model, measure, run, tables, token_spread
from tests.study.test_permutation import TEXTS

CPU = torch.device("cpu")
TINY = replace(QUICK, depths=(1, 3), longest=4, d_model=16, steps=2, rows=3, judged=7, n_seeds=2)


def test_the_encoder_alone_loses_its_residuals_and_no_parameter():
    whole, cut = (make_model(has, 2, 0, TINY) for has in (True, False))
    assert [type(layer.after_attention) for layer in cut.encoder.layers] == [NoResidual] * 2
    assert [type(layer.after_attention) for layer in cut.decoder.layers] == [Residual]
    assert whole.state_dict().keys() == cut.state_dict().keys()
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(cut.state_dict()[name], tensor, rtol=0, atol=0)


def test_without_residuals_tokens_become_alike_with_depth():
    kept, lost = ([token_spread(make_model(has, n, 0, TINY), TEXTS) for n in (1, 2, 4, 8)] for has in (True, False))
    assert lost == sorted(lost, reverse=True) and lost[-1] < 1e-4
    assert min(kept) > 0.3


def test_a_spread_is_a_share_of_the_size():
    model = make_model(True, 1, 0, TINY)
    with torch.no_grad():
        model.encoder.last_norm.weight.zero_()
        model.encoder.last_norm.bias.fill_(1.0)
    assert token_spread(model, TEXTS) == 0.0


def test_deep_stacks_learn_with_residuals_alone():
    small = replace(TINY, depths=(6,), longest=3, steps=40, rows=8, judged=32)
    kept, lost = (measure(has, 6, 0, small, CPU) for has in (True, False))
    assert kept.loss < lost.loss


def test_the_study_lists_each_depth():
    study = run(TINY, CPU)
    assert [(each.stream, each.depth) for each in study.reports] == [
        *(("with residuals", n) for n in (1, 3)),
        *(("without", n) for n in (1, 3)),
    ]
    assert study.reports[0].loss.n == 2 and study.blind_loss == SYMBOLS.blind_loss(4)
    assert tables(study)["depths"].row_count == 2 and len(figure(study).axes) == 2


@pytest.mark.parametrize(("changes", "said"), [({"steps": 0}, "got 0, 2 and"), ({"depths": (2, 0)}, r"\(2, 0\)")])
def test_settings_with_which_nothing_is_measured_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        run(replace(TINY, **changes), CPU)
