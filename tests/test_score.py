"""BLEU and chrF with their signatures."""

import pytest
import torch

from regard.score import compare, score, score_sentences, words

ENGLISH = ["The cat sat on the mat .", "Introduce Xi'an to me, please."]


def test_equal_texts_score_a_hundred():
    found = score(ENGLISH, ENGLISH, "en")
    torch.testing.assert_close((found.bleu, found.chrf), (100.0, 100.0))
    assert found.n == 2


def test_a_case_computed_by_hand():
    # Of 8 words 7 match, of 7 pairs 6, of 6 triples 5, of 5 fours 4; no length penalty: (7·6·5·4 / 8·7·6·5)^¼ = 2^-¼.
    found = score(["a b c d e f g x"], ["a b c d e f g h"], "en")
    torch.testing.assert_close(found.bleu, 100 * 2**-0.25)


def test_references_are_matched_line_by_line():
    assert score(ENGLISH, ENGLISH[::-1], "en").bleu < 20


def test_chinese_is_scored_by_characters():
    outputs, references = ["介绍一下西安的历史"], ["介绍一下西安的地理"]
    assert score(outputs, references, "zh").bleu > 50
    assert score(outputs, references, "en").bleu < 1


LANGUAGES = [("zh", "zh"), ("zh-CN", "zh"), ("zho_Hans", "zh"), ("cmn", "zh"), ("yue", "zh"), ("ja", "char")]
OTHERS = [("jpn_Jpan", "char"), ("jav", "13a"), ("en", "13a"), ("de_DE", "13a"), ("tgt", "13a")]


@pytest.mark.parametrize(("tgt_lang", "tokenizer"), LANGUAGES + OTHERS)
def test_signatures_name_the_tokenizer_of_the_language(tgt_lang, tokenizer):
    assert words(tgt_lang) == tokenizer
    found = score(["a b c d"], ["a b c d"], tgt_lang)
    assert f"|tok:{tokenizer}|" in found.bleu_signature
    assert "version:" in found.bleu_signature
    assert found.chrf_signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|")


def test_case_counts_unless_told_otherwise():
    outputs = [line.upper() for line in ENGLISH]
    assert score(outputs, ENGLISH, "en").bleu < 50
    lower = score(outputs, ENGLISH, "en", lowercase=True)
    torch.testing.assert_close((lower.bleu, lower.chrf), (100.0, 100.0))
    assert "case:lc" in lower.bleu_signature
    assert "case:lc" in lower.chrf_signature


def test_outputs_without_their_reference_are_refused():
    with pytest.raises(ValueError, match="one reference for each output, got 1 for 2"):
        score(ENGLISH, ENGLISH[:1], "en")


def test_nothing_to_score_is_refused():
    with pytest.raises(ValueError, match="there must be an output to score, got 0"):
        score([], [], "en")


def test_any_of_several_references_will_do():
    assert score(["a b c d e"], ["v w x y z"], "en", others=[["a b c d e"]]).bleu > 99


def test_each_sentence_has_its_scores():
    perfect, poor = score_sentences([ENGLISH[0], "nothing like it"], [ENGLISH], "en")
    assert perfect.bleu > 99.9 and perfect.chrf > 99.9 and poor.bleu < 10 and poor.chrf < 30


def test_a_better_system_is_told_from_an_equal_one():
    references = [f"the {i} cats of house {i * 7} sat on {i * 3} mats" for i in range(50)]
    worse = [text.replace("cats", "dogs") if i % 3 else text.replace("mats", "") for i, text in enumerate(references)]
    first, equal, better = compare({"worse": worse, "same": worse, "better": references}, [references], "en", 200)
    assert first.bleu_p is None and equal.bleu_p > 0.5 and better.bleu_p < 0.02
    assert first.bleu_interval[0] <= first.bleu <= first.bleu_interval[1] < better.bleu_interval[0] + 1e-9
    with pytest.raises(ValueError, match="got 50 for 3"):
        compare({"one": worse[:3]}, [references], "en")
