"""Exported folders in Hugging Face's own classes: logits, searches, cards."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel, PegasusForConditionalGeneration
from transformers.utils import logging

from regard.batch import make_batch
from regard.exchange.outgoing import exported_folder, open_outgoing
from regard.exchange.to_transformers import write_transformers
from regard.padding import EOS, PAD
from regard.pipeline import load_translator
from tests.exchange.small import CHINESE, DECODE, MODEL, TEXT, part, run_card, save_small, small_checkpoint

logging.disable_progress_bar()
SOURCES = [[7, 8, 9, 10, 11], [12], [13, 14, 9]]
TARGETS = [[20, 21], [22, 23, 24, 25], [26]]


def export(folder, out):
    outgoing = open_outgoing(folder, "transformers", "float32")
    with exported_folder(out, False, outgoing, "transformers") as draft:
        write_transformers(outgoing, draft, out.name, "float32")
    return out


VARIANTS = {
    "pre-norm": (MODEL, PegasusForConditionalGeneration),
    "post-norm": (replace(MODEL, norm_place="after"), MarianMTModel),
    "learned": (
        replace(MODEL, position=part("learned", max_len=31), activation="gelu"),
        PegasusForConditionalGeneration,
    ),
    "post-norm, learned": (replace(MODEL, position=part("learned", max_len=31), norm_place="after"), MarianMTModel),
    "base": (
        replace(MODEL, position=part("sinusoidal", base=500.0), activation="silu"),
        PegasusForConditionalGeneration,
    ),
    "none": (replace(MODEL, position=part("none"), d_embedding=5), PegasusForConditionalGeneration),
    "three tables": (replace(MODEL, tie="none"), PegasusForConditionalGeneration),
    "output apart": (replace(MODEL, tie="inputs", norm_place="after"), MarianMTModel),
    "source apart": (replace(MODEL, tie="target"), PegasusForConditionalGeneration),
    "bias, unscaled": (replace(MODEL, output_bias=True, scale_embedding=False), PegasusForConditionalGeneration),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_their_class_computes_our_logits(tmp_path, name):
    model, kind = VARIANTS[name]
    checkpoint = small_checkpoint(model)
    out = export(save_small(tmp_path / "ours", checkpoint), tmp_path / "theirs")
    theirs = AutoModelForSeq2SeqLM.from_pretrained(out)
    assert type(theirs) is kind
    batch = make_batch(SOURCES, TARGETS)
    with torch.no_grad():
        expected = checkpoint.model(batch)
        seen = (batch.src.ids != PAD).long()
        found = theirs(input_ids=batch.src.ids, attention_mask=seen, decoder_input_ids=batch.tgt.inputs).logits
    real = batch.tgt.token_mask
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)
    assert expected[real].std() > 0.1, "logits that could differ"


@pytest.mark.parametrize("decode", [DECODE, replace(DECODE, method="greedy"), replace(DECODE, length_penalty=0.3)])
def test_generate_writes_our_translations(tmp_path, decode):
    folder = save_small(tmp_path / "ours", small_checkpoint(replace(MODEL, tie="none"), decode=decode))
    out = export(folder, tmp_path / "theirs")
    tokenizer, theirs = AutoTokenizer.from_pretrained(out), AutoModelForSeq2SeqLM.from_pretrained(out)
    texts = [*CHINESE, "橋很舊", "读 a book"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    special = set(range(EOS + 1))
    written = [
        [tokenizer.convert_ids_to_tokens(token) for token in ids if token not in special]
        for ids in theirs.generate(**batch).tolist()
    ]
    expected = [each.tokens for each in load_translator(folder).translate(texts)]
    assert written == expected
    assert len(set(map(tuple, expected))) > 2, "translations that could differ"


def test_the_code_of_the_card_prints_our_translations(tmp_path, monkeypatch, capsys):
    made = small_checkpoint(replace(MODEL, tie="none"), replace(TEXT, byte_fallback=False, vocab_size=110))
    folder = save_small(tmp_path / "ours", made)
    expected = [each.text for each in load_translator(folder).translate(CHINESE)]
    assert run_card(export(folder, tmp_path / "theirs"), monkeypatch, capsys) == f"{expected}\n"


def test_what_looks_like_a_special_token_is_text(tmp_path):
    out = export(save_small(tmp_path / "ours"), tmp_path / "theirs")
    tokenizer = AutoTokenizer.from_pretrained(out)
    ids = tokenizer("a </s> <pad> <0x41>").input_ids
    assert ids[-1] == 3 and not set(ids[:-1]) & {0, 1, 2, 3}
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a </s> <pad> <0x41>"
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (
        0,
        1,
        2,
        3,
    )


def test_the_card_has_a_header_and_what_is_known(tmp_path):
    out = export(save_small(tmp_path / "ours"), tmp_path / "theirs")
    card = (out / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlanguage:\n- zh\n- en\nlicense: other\n")
    assert "AutoModelForSeq2SeqLM.from_pretrained" in card and "Tatoeba (https://tatoeba.org)" in card
    assert "/home/someone" not in card + (out / "regard.json").read_text(encoding="utf-8")
