"""What failed is searched for again, and nothing else; a trace and a live translation show what is translated."""

from dataclasses import replace

import pytest

import regard
from regard.pipeline.live import LiveText
from regard.pipeline.recovery import ReadPart, has_failed
from regard.pipeline.translator import MOST_AGAIN
from regard.search.hypothesis import is_loop, make_hypothesis
from regard.trace import trace_texts

FAILING = {
    "zh-en": ["我们在 https://www.wynryt.cn 见面。", "ρ" * 30, "你好。https://www.qgqd.org/cdajmndyc/idpmiax-8"],
    "en-zh": ["Bus number https://www.sangbotr.com/pcu/uyhmhpd-2 stops here.", "a " * 40],
}
FINE = {"zh-en": ["你好。", "我喜欢音乐。", "", "他的号码是3。"], "en-zh": ["Hello.", "I like music."]}
METHODS = {"beam": {"beam": 3, "n_best": 2}, "greedy": {"beam": 1, "n_best": 1}}


@pytest.fixture(scope="module", params=FAILING)
def translator(request):
    return regard.load(request.param, precision="int8")


def name(translator):
    return f"{translator.src_lang}-{translator.tgt_lang}"


def first_search(translator, texts, settings):
    segmented = translator.segment(texts, settings)
    return segmented, translator.search(segmented, settings, [], lambda n: None)


@pytest.mark.parametrize("method", METHODS)
def test_addresses_are_kept_and_circles_broken(translator, method):
    settings = replace(translator.settings, method=method, **METHODS[method])
    texts = FAILING[name(translator)]
    segmented, found = first_search(translator, texts, settings)
    failed = translator.recover(segmented, found, settings)
    assert any(before is not after for before, after in zip(found, failed, strict=True)), "these texts do not fail"
    parts = [part for text in segmented for part in text.parts]
    assert not any(is_loop(part, some[0].ids) for part, some in zip(parts, failed, strict=True))
    for text, translated in zip(texts, translator.merge(segmented, failed, settings), strict=True):
        assert "http" not in text or text.split("http")[1].split()[0].strip("。") in translated.text
        assert len(translated.alternatives) == settings.n_best
    assert [each.text for each in translator.translate(texts[:1], settings)] == [
        each.text for each in translator.merge(segmented[:1], failed[: len(segmented[0].parts)], settings)
    ]


def test_what_is_fine_is_left_alone(translator):
    segmented, found = first_search(translator, FINE[name(translator)], translator.settings)
    again = translator.recover(segmented, found, translator.settings)
    assert all(before is after for before, after in zip(found, again, strict=True))


def test_samples_are_left_as_they_were_drawn(translator):
    settings = replace(translator.settings, method="sample")
    segmented, found = first_search(translator, FAILING[name(translator)], settings)
    assert translator.recover(segmented, found, settings) is found


def test_a_trace_and_a_live_translation_show_what_is_translated(translator):
    texts = [FAILING[name(translator)][0], FINE[name(translator)][0]]
    said = [each.text for each in translator.translate(texts)]
    traced = trace_texts(translator, texts)
    assert [each.text for each in traced] == said
    assert [each.trace.output for each in traced] == said
    assert len(traced[0].trace.tree.leaves()) == 1 < len(traced[1].trace.tree.leaves())
    assert [
        LiveText(translator, text, translator.settings, []).follow(lambda so_far: None).text for text in texts
    ] == said


def test_a_prefix_and_a_glossary_are_kept_too(translator):
    text = FAILING[name(translator)][0]
    begin = {"zh-en": "Well, ", "en-zh": "那么，"}[name(translator)]
    (found,) = translator.translate(text, prefix=begin)
    assert found.text.startswith(begin.strip()) and text.split("http")[1].split()[0] in found.text


def test_one_text_does_not_cost_the_work_of_many(translator):
    text = "\n".join(FAILING[name(translator)][:1] * (MOST_AGAIN + 3))
    segmented, found = first_search(translator, [text], replace(translator.settings, method="greedy"))
    again = translator.recover(segmented, found, replace(translator.settings, method="greedy"))
    assert sum(before is not after for before, after in zip(found, again, strict=True)) == MOST_AGAIN


def test_silence_is_a_failure_where_there_was_something_to_say(translator):
    silent = make_hypothesis([3], [-1.0], 1.0)
    assert has_failed(ReadPart("好", [9]), silent, translator.tokenizer)
    assert not has_failed(ReadPart("…", [9]), silent, translator.tokenizer)
