"""Hugging Face models, made at random and traced as ours are."""

from math import isnan

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
)

from regard.trace import trace_hf

WORDS = ["<pad>", "</s>", "<unk>", *"abcdefgh"]
V = len(WORDS)
TEXT = "a b c d"


@pytest.fixture(scope="module")
def tokenizer():
    """A word is a piece; a text ends with </s>."""
    plain = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    plain.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=plain, **names)


def make_marian():
    torch.manual_seed(1)
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "init_std": 0.5}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": 1}
    config = MarianConfig(vocab_size=V, max_position_embeddings=32, num_beams=1, **sizes, **ids)
    return MarianMTModel(config).train()


def test_an_encoder_decoder(tokenizer):
    model = make_marian()
    before = model.config._attn_implementation
    trace = trace_hf(model, tokenizer, TEXT, max_new_tokens=5)
    assert model.training and model.config._attn_implementation == before != "eager"
    assert [(look.kind, look.layer, look.n_heads) for look in trace.looks] == [
        ("encoder", 0, 2), ("encoder", 1, 2), ("decoder", 0, 4), ("cross", 0, 4),
    ]  # fmt: skip
    assert trace.source == (*TEXT.split(), "</s>")
    assert trace.read[0] == "<pad>" and trace.read[1:] == trace.target[:-1]
    assert trace.target[-1] == "</s>" and trace.output == " ".join(trace.target[:-1])
    model.eval()
    read = tokenizer(TEXT, return_tensors="pt")
    ids = tokenizer.convert_tokens_to_ids(list(trace.read))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        seen = model(**read, decoder_input_ids=torch.tensor([ids]), output_attentions=True)
    torch.testing.assert_close(trace.cross[0].weights(), seen.cross_attentions[0][0])
    log_probs = seen.logits[0].log_softmax(-1)
    for row, step in zip(log_probs, trace.steps, strict=True):
        assert step.log_prob == pytest.approx(float(row[WORDS.index(step.piece)]), abs=1e-5)
        assert [each.piece for each in step.alternatives] == [WORDS[i] for i in row.topk(10).indices.tolist()]
    check = trace.check()
    assert isnan(check.weights) and isnan(check.log_prob), "there is nothing of ours to compare with"
    assert trace.to_hf().encoder_attentions[1].shape == (1, 2, 5, 5)


def test_a_given_output_is_read_instead(tokenizer):
    trace = trace_hf(make_marian(), tokenizer, TEXT, output="h g")
    assert (trace.read, trace.target) == (("<pad>", "h", "g"), ("h", "g", "</s>"))


def test_a_decoder(tokenizer):
    torch.manual_seed(1)
    ids = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=32, n_embd=8, n_layer=2, n_head=2, **ids)).eval()
    trace = trace_hf(model, tokenizer, TEXT, output="e f")
    assert trace.read == (*TEXT.split(), "</s>", "e", "f")
    assert trace.target[:-1] == trace.read[1:] and trace.target[-1] == trace.steps[-1].alternatives[0].piece
    assert [look.kind for look in trace.looks] == ["decoder"] * 2 and trace.source == ()
    assert not trace.decoder[0].weights().triu(1).any()
    assert 5 < len(trace_hf(model, tokenizer, TEXT, max_new_tokens=3).read) <= 5 + 3
    assert trace_hf(model, tokenizer, TEXT, output="").read == (*TEXT.split(), "</s>")
    assert trace.output == "a b c d e f"


def test_an_encoder(tokenizer):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertModel(BertConfig(vocab_size=V, max_position_embeddings=32, **sizes)).eval()
    trace = trace_hf(model, tokenizer, TEXT)
    assert [look.kind for look in trace.looks] == ["encoder"] * 2
    assert trace.source == (*TEXT.split(), "</s>") and trace.read == trace.steps == ()
    torch.testing.assert_close(trace.encoder[1].weights().sum(-1), torch.ones(2, 5))
    assert "2 encoder layers" in repr(trace)
