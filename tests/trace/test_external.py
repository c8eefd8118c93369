"""Hugging Face models, made at random and traced as ours are.

Any `nn.MultiheadAttention` in anybody's module is looked at as ours are.
"""

from math import isnan

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
)

from regard.trace import report_hf_heads, trace_hf, watch

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


SMALL = {"vocab_size": V, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"intermediate_size": 8, "max_position_embeddings": 32, "pad_token_id": 0, "eos_token_id": 1}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 4}
OTHERS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**GROUPED)),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**GROUPED, sliding_window=3)),
    "roberta": lambda: transformers.RobertaModel(transformers.RobertaConfig(**SMALL)),
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=V, d_model=16, d_kv=4, d_ff=8, num_layers=2, num_heads=4,
                              decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
    ),
    "bart": lambda: transformers.BartForConditionalGeneration(
        transformers.BartConfig(vocab_size=V, d_model=16, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=8,
                                decoder_ffn_dim=8, encoder_attention_heads=4, decoder_attention_heads=4, pad_token_id=0,
                                bos_token_id=2, eos_token_id=1, decoder_start_token_id=1, forced_eos_token_id=1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_scores_of_other_models(tokenizer, name):
    torch.manual_seed(2)
    model = OTHERS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    trace = trace_hf(model, tokenizer, TEXT, output="e f")
    model.set_attn_implementation("eager")
    read = tokenizer(TEXT + " e f" * (trace.attention[0].kind == "decoder"), return_tensors="pt")
    if trace.attention[0].kind == "decoder":
        read = {"input_ids": torch.tensor([tokenizer.convert_tokens_to_ids(list(trace.read))])}
    elif trace.cross:
        read["decoder_input_ids"] = torch.tensor([tokenizer.convert_tokens_to_ids(list(trace.read))])
    with torch.no_grad():
        seen = model(**read, output_attentions=True)
    kinds = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
    for look in trace.attention:
        own = (getattr(seen, kinds[look.kind], None) or seen.attentions)[look.layer][0]
        torch.testing.assert_close(look.weights(), own, rtol=1e-4, atol=1e-5)
        if name == "gemma2":  # whose scores are squeezed, and no dot products any more
            continue
        scores = look.scores().masked_fill(~torch.stack([look.allowed(h) for h in range(look.n_heads)]), -torch.inf)
        torch.testing.assert_close(scores.softmax(-1), own, rtol=1e-4, atol=1e-5)
        assert look.error() < 1e-4 and look.terms(0).error < 1e-4
    if name == "t5":
        assert "bias" in trace.attention[0].terms(0).names and trace.attention[0].terms(0)["bias"].abs().max() > 0.1
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("name", ["llama", "t5", "gemma2"])
def test_heads_of_other_models_are_reported_on(tokenizer, name):
    torch.manual_seed(2)
    model = OTHERS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    texts = [("a b c", "d e f"), ("h g", "a")] if name == "t5" else ["a b c d e", "h g f"]
    report = report_hf_heads(model, tokenizer, texts)
    kinds = ["encoder", "decoder", "cross"] if name == "t5" else ["decoder"]
    assert [str(each) for each in report.heads] == [
        f"{k}:{layer}:{h}" for k in kinds for layer in (0, 1) for h in range(4)
    ]
    # The first head of the last layer, removed by its columns of the output projection.
    last = (
        model.decoder.block[-1].layer[0].SelfAttention.o if name == "t5" else model.model.layers[-1].self_attn.o_proj
    ).weight
    before = report_hf_heads(model, tokenizer, texts).whole.loss
    with torch.no_grad():
        last[:, :4] = 0.0
    without = report_hf_heads(model, tokenizer, texts).whole.loss
    found = next(each for each in report.heads if str(each) == "decoder:1:0")
    assert before == report.whole.loss and found.loss == pytest.approx(without - before, abs=1e-5) and found.loss != 0.0
    assert 0 <= found.habits.spread <= 1
    with pytest.raises(ValueError, match="needs pairs.*'a b'" if name == "t5" else "reads texts.*'a'"):
        report_hf_heads(model, tokenizer, ["a b"] if name == "t5" else [("a", "b")])


def test_an_encoder_decoder(tokenizer):
    model = make_marian()
    before = model.config._attn_implementation
    trace = trace_hf(model, tokenizer, TEXT, max_new_tokens=5)
    assert model.training and model.config._attn_implementation == before != "eager"
    assert [(look.kind, look.layer, look.n_heads) for look in trace.attention] == [
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
    assert check.weights < 1e-5 and isnan(check.log_prob), "there is no search of ours to compare with"
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
    assert [look.kind for look in trace.attention] == ["decoder"] * 2 and trace.source == ()
    assert not trace.decoder[0].weights().triu(1).any()
    assert 5 < len(trace_hf(model, tokenizer, TEXT, max_new_tokens=3).read) <= 5 + 3
    assert trace_hf(model, tokenizer, TEXT, output="").read == (*TEXT.split(), "</s>")
    assert trace.output == "a b c d e f"


def test_an_encoder(tokenizer):
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertModel(BertConfig(vocab_size=V, max_position_embeddings=32, **sizes)).eval()
    trace = trace_hf(model, tokenizer, TEXT)
    assert [look.kind for look in trace.attention] == ["encoder"] * 2
    assert trace.source == (*TEXT.split(), "</s>") and trace.read == trace.steps == ()
    torch.testing.assert_close(trace.encoder[1].weights().sum(-1), torch.ones(2, 5))
    assert "2 encoder layers" in repr(trace)


B, Q, K, D, H = 2, 3, 5, 8, 2
FORBIDDEN = torch.tensor([[False, True, False, False, True]] * Q)
OPTIONS = {
    "plain": {},
    "without bias": {"bias": False},
    "other widths": {"kdim": 7, "vdim": 6},
    "a learned key": {"add_bias_kv": True},
    "a key of zeros": {"add_zero_attn": True},
    "both keys": {"add_bias_kv": True, "add_zero_attn": True},
    "batch second": {"batch_first": False},
}
MASKS = {
    "none": {},
    "a rule": {"attn_mask": FORBIDDEN},
    "a rule for each head": {"attn_mask": torch.stack([FORBIDDEN, ~FORBIDDEN, ~FORBIDDEN, FORBIDDEN])},
    "numbers": {"attn_mask": torch.randn(Q, K, generator=torch.Generator().manual_seed(1))},
    "padding": {"key_padding_mask": torch.tensor([[False] * 5, [False, False, True, True, True]])},
    "padding and a rule": {
        "key_padding_mask": torch.tensor([[False] * 5, [False, False, False, True, True]]),
        "attn_mask": FORBIDDEN,
    },
}


def make_module(**options):
    torch.manual_seed(2)
    module = nn.MultiheadAttention(D, H, **({"batch_first": True} | options)).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("option", OPTIONS)
@torch.no_grad()
def test_weights_are_those_that_the_module_itself_can_give(option, mask):
    module = make_module(**OPTIONS[option])
    widths = (Q, D), (K, OPTIONS[option].get("kdim", D)), (K, OPTIONS[option].get("vdim", D))
    inputs = [torch.randn(B, n, width) for n, width in widths]
    inputs = inputs if module.batch_first else [x.transpose(0, 1) for x in inputs]
    with watch(module) as seen:
        module(*inputs, **MASKS[mask], need_weights=False)
    _, expected = module(*inputs, **MASKS[mask], average_attn_weights=False)
    for sequence in range(B):
        (look,) = seen.attention(sequence)
        torch.testing.assert_close(look.weights(), expected[sequence])
        assert look.error() < 1e-5
        assert look.kind == "cross" and look.sizes == tuple(expected.shape[1:])


@torch.no_grad()
def test_a_call_without_a_batch_is_a_batch_of_one():
    module, x = make_module(), torch.randn(Q, D)
    with watch(module) as seen:
        module(x, x, x)
    (look,) = seen.attention()
    assert look.kind == "encoder" and look.error() < 1e-5
    with pytest.raises(ValueError, match=r"sequence must lie in 0 … 0, got 1"):
        seen.attention(1)


class Mine(nn.Module):
    """What a user may have: PyTorch's own stacks inside a module."""

    def __init__(self):
        super().__init__()
        self.model = nn.Transformer(D, H, 2, 1, 11, batch_first=True)

    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        return self.model(src, tgt, tgt_mask=mask, tgt_is_causal=True)


@torch.no_grad()
def test_a_user_s_module_becomes_a_trace_past_the_fused_layers():
    torch.manual_seed(4)
    module = Mine().eval()
    src, tgt = torch.randn(1, K, D), torch.randn(1, Q, D)
    assert torch.backends.mha.get_fastpath_enabled()
    with watch(module) as seen:
        assert not torch.backends.mha.get_fastpath_enabled()
        module(src, tgt)
    assert torch.backends.mha.get_fastpath_enabled()
    assert seen.names == [
        *(f"model.encoder.layers.{n}.self_attn" for n in range(2)),
        *(f"model.decoder.layers.0.{name}" for name in ("self_attn", "multihead_attn")),
    ]
    trace = seen.trace(list("abcde"), list("xyz"))
    assert [(look.kind, look.layer) for look in trace.attention] == [
        ("encoder", 0), ("encoder", 1), ("decoder", 0), ("cross", 0),
    ]  # fmt: skip
    assert trace.check().weights < 1e-5 and trace.check().log_prob != trace.check().log_prob
    assert not trace.decoder[0].weights().triu(1).any(), "the future is hidden"
    assert trace.encoder[0].terms().names == ("score",)
    assert trace.to_hf().cross_attentions[0].shape == (1, H, Q, K)
    assert trace.source == tuple("abcde") and trace.read == tuple("xyz")
    with pytest.raises(ValueError, match=r"one token for each query and key of .*, got 4 and 4 tokens"):
        seen.trace(list("abcd"), list("xyz"))


def test_nothing_is_left_behind():
    module = make_module()
    with pytest.raises(ValueError, match="stop"), watch(module):
        raise ValueError("stop")
    assert torch.backends.mha.get_fastpath_enabled()
    assert not module._forward_hooks


@torch.no_grad()
def test_a_query_that_may_look_at_nothing_has_zeros():
    """PyTorch gives no numbers there."""
    module, x = make_module(), torch.randn(1, Q, D)
    nobody = torch.zeros(Q, Q, dtype=torch.bool)
    nobody[1] = True
    with watch(module) as seen:
        module(x, x, x, attn_mask=nobody)
    weights = seen.attention()[0].weights()
    assert not weights[:, 1].any()
    torch.testing.assert_close(weights[:, 0].sum(-1), torch.ones(H))
