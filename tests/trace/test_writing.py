"""A text watched while it is written: the text is the same, and so are the weights."""

import pytest
import torch

from regard.trace import trace
from regard.trace.generation import trace_tokens
from tests.pipeline.writers import make_model, make_writer


@pytest.mark.parametrize("method", ["greedy", "sample"])
@pytest.mark.parametrize("position", ["rotary", "alibi", "learned", "none"])
def test_what_is_watched_is_what_is_written(method, position):
    writer = make_writer(make_model(position), method=method, max_extra=12)
    ids = writer.encode("bad fa")
    watched = list(trace_tokens(writer, ids, writer.settings))
    assert [(each.token, each.log_prob) for each in watched] == list(writer.tokens(ids, writer.settings))


def test_weights_are_those_of_the_whole_text():
    writer = make_writer(method="greedy", max_extra=7)
    ids = writer.encode("cab")
    seen = trace(writer, "cab")
    whole = torch.stack([look.weights() for look in seen.decoder]).mean((0, 1))
    for step, each in enumerate(trace_tokens(writer, ids, writer.settings)):
        row = len(ids) + step
        torch.testing.assert_close(each.weights, whole[row, : row + 1], check_dtype=False)


def test_a_model_that_has_forgotten_the_beginning_looked_at_less():
    writer = make_writer(window=8, method="greedy", max_extra=20)
    lengths = [len(each.weights) for each in trace_tokens(writer, writer.encode("abcde"), writer.settings)]
    assert lengths[0] == 6 and max(lengths) <= 8 and min(lengths[3:]) < 8


def test_the_model_itself_is_not_listened_to():
    writer = make_writer(max_extra=2)
    list(trace_tokens(writer, [], writer.settings))
    assert not any(module._forward_hooks for module in writer.model.modules())
