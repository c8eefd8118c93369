"""Exported folders in CTranslate2's own Translator: scores, searches, two vocabularies, 8 bits."""

import json
from dataclasses import replace

import ctranslate2
import pytest
import torch
from tokenizers import Tokenizer as TheirTokenizer

from regard.batch import make_batch
from regard.exchange.outgoing import exported_folder, open_outgoing
from regard.exchange.to_ctranslate2 import READS, WRITES, search_options, write_ctranslate2
from regard.model.seq2seq import label_log_probs
from regard.pipeline import load_translator
from tests.exchange.small import CHINESE, DECODE, MODEL, TEXT, part, run_card, save_small, small_checkpoint


def export(folder, out, precision="float32"):
    outgoing = open_outgoing(folder, "ctranslate2", precision)
    with exported_folder(out, False, outgoing, "ctranslate2") as draft:
        write_ctranslate2(outgoing, draft, out.name, precision)
    return ctranslate2.Translator(str(out), compute_type=precision), search_options(outgoing)


SOURCES = [[7, 8, 9, 10, 11], [12], [13, 14, 9]]
TARGETS = [[20, 21], [22, 23, 24, 25], [26]]
VARIANTS = {
    "pre-norm": MODEL,
    "post-norm": replace(MODEL, norm_place="after", activation="gelu"),
    "learned": replace(MODEL, position=part("learned", max_len=31), activation="silu"),
    "none": replace(MODEL, position=part("none"), d_embedding=5),
    "three tables": replace(MODEL, tie="none"),
    "bias, unscaled": replace(MODEL, output_bias=True, scale_embedding=False),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_their_scores_of_targets_are_ours(tmp_path, name):
    checkpoint = small_checkpoint(VARIANTS[name])
    theirs, _ = export(save_small(tmp_path / "ours", checkpoint), tmp_path / "theirs")
    batch = make_batch(SOURCES, TARGETS)
    with torch.no_grad():
        expected = label_log_probs(checkpoint.model(batch), batch.tgt.labels)
    pieces = checkpoint.tokenizer.pieces
    sources = [[*pieces(ids, "src"), "</s>"] for ids in SOURCES]
    found = theirs.score_batch(sources, [pieces(ids, "tgt") for ids in TARGETS])
    for row, ids, each in zip(expected, TARGETS, found, strict=True):
        torch.testing.assert_close(torch.tensor(each.log_probs), row[: len(ids) + 1], atol=1e-4, rtol=1e-5)


def translate(out, translator, options, texts):
    read = TheirTokenizer.from_file(str(out / READS))
    read.encode_special_tokens = True
    sentences = [each.tokens for each in read.encode_batch(texts)]
    return [each.hypotheses[0] for each in translator.translate_batch(sentences, **options)]


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("decode", [DECODE, replace(DECODE, method="greedy"), replace(DECODE, length_penalty=0.3)])
def test_translate_batch_writes_our_translations(tmp_path, decode, joint):
    made = small_checkpoint(replace(MODEL, tie="none"), replace(TEXT, joint=joint), decode)
    folder = save_small(tmp_path / "ours", made)
    translator, options = export(folder, tmp_path / "theirs")
    texts = [*CHINESE, "橋很舊", "读 a book"]
    expected = [each.tokens for each in load_translator(folder).translate(texts)]
    assert translate(tmp_path / "theirs", translator, options, texts) == expected
    assert len(set(map(tuple, expected))) > 2, "translations that could differ"
    assert (tmp_path / "theirs" / WRITES).exists() == (not joint)


def test_8_bits_are_stored_as_such(tmp_path):
    folder = save_small(tmp_path / "ours")
    whole, _ = export(folder, tmp_path / "whole")
    small, options = export(folder, tmp_path / "small", "int8")
    assert (whole.compute_type, small.compute_type) == ("float32", "int8_float32")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("whole", "small")]
    assert sizes[1] < 0.7 * sizes[0]  # positions stay as they are
    assert all(translate(tmp_path / "small", small, options, CHINESE))


def test_the_code_of_the_card_prints_our_translations(tmp_path, monkeypatch, capsys):
    made = small_checkpoint(replace(MODEL, tie="none"), replace(TEXT, byte_fallback=False, vocab_size=110))
    folder = save_small(tmp_path / "ours", made)
    export(folder, tmp_path / "theirs")
    expected = [each.text for each in load_translator(folder).translate(CHINESE)]
    assert run_card(tmp_path / "theirs", monkeypatch, capsys).splitlines() == expected


def test_the_card_holds_the_call_and_its_options(tmp_path):
    _, options = export(save_small(tmp_path / "ours"), tmp_path / "theirs")
    card = (tmp_path / "theirs" / "README.md").read_text(encoding="utf-8")
    assert "library_name: ctranslate2" in card
    assert "min_decoding_length=0, max_decoding_length=9" in card and options["max_decoding_length"] == 9
    record = json.loads((tmp_path / "theirs" / "regard.json").read_text(encoding="utf-8"))
    assert record["format"] == "ctranslate2" and "model.bin" in record["files"]
