"""A search told as it happens is the search that it always is."""

from dataclasses import replace

import pytest

from regard.trace.live import follow

from .makers import METHODS, MODELS, make_model, make_translator

SEARCHES = ("greedy", "beam")


@pytest.mark.parametrize("method", SEARCHES)
@pytest.mark.parametrize(("family", "scheme"), MODELS[::4])
def test_what_is_told_last_is_what_is_found(family, scheme, method):
    translator = make_translator(make_model(family, scheme), **METHODS[method])
    for text in ("abc", "bad cab"):
        told = []
        found = follow(translator, text, translator.settings, [], told.append)
        assert found == translator.translate(text)[0]
        assert [len(each.tokens) for each in told[:2]] == [1, 2][: len(told)]


@pytest.mark.parametrize("text", ["bad cab", "jihgfedcba", "dead bee"])
def test_what_leads_is_the_best_of_what_the_search_keeps(text):
    translator = make_translator(make_model(), method="beam", beam=4, max_extra=12)
    told = []
    follow(translator, text, translator.settings, [], told.append)
    nodes = translator.translate(text, trace=True)[0].trace.tree.nodes
    for step, now in enumerate(told):
        best = max((node.total, node.number) for node in nodes if node.step == step and node.fate in {"kept", "open"})
        assert now.score * (step + 1) == pytest.approx(best[0], abs=1e-9)
        assert now.tokens[-1] == nodes[best[1]].piece


def test_greedy_search_tells_each_token_once():
    translator = make_translator(make_model(), method="greedy")
    told = []
    found = follow(translator, "abc", translator.settings, [], told.append)
    assert [each.tokens for each in told][: len(found.tokens)] == [
        found.tokens[: n + 1] for n in range(len(found.tokens))
    ]


def test_a_prefix_is_told_from_the_beginning():
    translator = make_translator(make_model(), **METHODS["beam"])
    prefix, told = translator.tokenizer.encode("ha", "tgt"), []
    found = follow(translator, "abc", translator.settings, prefix, told.append)
    assert told[1].text == "ha" and found == translator.translate("abc", prefix="ha")[0]


def test_a_long_text_goes_on_where_its_last_part_ended():
    translator = make_translator(make_model(), method="greedy")
    told, text = [], "bad cab. " * 5
    found = follow(translator, text, translator.settings, [], told.append)
    assert found.tokens == translator.translate(text)[0].tokens  # scores differ in the last digit by the batch
    lengths = [len(each.tokens) for each in told]
    assert lengths == sorted(lengths) and lengths[-1] == len(found.tokens)


def test_nothing_is_told_of_nothing():
    translator = make_translator(make_model())
    assert follow(translator, " ", replace(translator.settings), [], pytest.fail).text == ""


def test_who_listens_can_end_it():
    translator, heard = make_translator(make_model()), []

    def enough(now):
        heard.append(now)
        raise KeyError("enough")

    with pytest.raises(KeyError):
        follow(translator, "abc", translator.settings, [], enough)
    assert len(heard) == 1
