"""Our models as folders that CTranslate2's Translator opens, by the specification that its own converters fill in."""

from pathlib import Path
from typing import Any

from ctranslate2.specs import TransformerSpec, common_spec

from regard.data.tokenizer import Tokenizer
from regard.engine.native_weights import TransformerWeights, as_floats
from regard.exchange.outgoing import Outgoing, outgoing_card, position_table, usage, write_table
from regard.exchange.tokenizer_json import tokenizer_json, vocabulary
from regard.shapes import np

ACTIVATION = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "silu": common_spec.Activation.SWISH,
}
# A joint tokenizer reads and writes.
READS, WRITES = "tokenizer.json", "target_tokenizer.json"


def write_ctranslate2(model: Outgoing, part: Path, name: str, precision: str) -> list[str]:
    """Write all files of a folder, and return what a person has to fill in in its card."""
    tokenizer = model.tokenizer
    sides = zip((READS, WRITES), ("src", "tgt"), tokenizer.models, strict=False)
    tables = {file: tokenizer_json(each, side in tokenizer.simplified) for file, side, each in sides}
    words = [vocabulary(table) for table in tables.values()]
    spec = specification(model.weights, model.n_positions, (words[0], words[-1]))
    spec.optimize(None if precision == "float32" else precision)
    spec.save(str(part))
    for file, table in tables.items():
        write_table(part / file, table)
    card, missing = outgoing_card(model, name, "ctranslate2", _usage(model, name))
    (part / "README.md").write_text(card, encoding="utf-8")
    return missing


def specification(weights: TransformerWeights, n_positions: int, words: tuple[list[str], list[str]]) -> TransformerSpec:
    """Return a model as CTranslate2 writes it, with a table of so many positions and the words of both sides."""
    spec: Any = TransformerSpec.from_config(
        weights.n_layers, weights.n_heads, pre_norm=weights.norm_first, activation=ACTIVATION[weights.activation]
    )
    sides = ((spec.encoder, "encoder", weights.src_codes), (spec.decoder, "decoder", weights.tgt_codes))
    for stack, side, codes in sides:
        stack.position_encodings.encodings = position_table(codes, n_positions, weights.d_model)
        for n, layer in enumerate(stack.layer):
            _layer(layer, weights, f"{side}.layers.{n}")
        if weights.norm_first:
            _norm(stack.layer_norm, weights, f"{side}.last_norm")
    spec.encoder.embeddings[0].weight = as_floats(weights.src_table)
    spec.decoder.embeddings.weight = as_floats(weights.tgt_table)
    spec.decoder.projection.weight = as_floats(weights.output_table)
    if weights.output_bias is not None:
        spec.decoder.projection.bias = as_floats(weights.output_bias)
    for stack in (spec.encoder, spec.decoder):
        stack.scale_embeddings = weights.scale_embedding
    source, target = words
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.unk_token, spec.config.bos_token = target[Tokenizer.unk_id], target[Tokenizer.bos_id]
    spec.config.eos_token, spec.config.decoder_start_token = target[Tokenizer.eos_id], target[Tokenizer.bos_id]
    spec.validate()
    return spec


def _layer(layer: Any, weights: TransformerWeights, name: str) -> None:
    maps = [f"{name}.attention.{each}" for each in ("w_q", "w_k", "w_v")]
    _linear(layer.self_attention.linear[0], weights, *maps)
    _linear(layer.self_attention.linear[1], weights, f"{name}.attention.w_o")
    _norm(layer.self_attention.layer_norm, weights, f"{name}.after_attention.norm")
    if name.startswith("decoder"):
        cross = f"{name}.cross_attention"
        _linear(layer.attention.linear[0], weights, f"{cross}.w_q")
        _linear(layer.attention.linear[1], weights, f"{cross}.w_k", f"{cross}.w_v")
        _linear(layer.attention.linear[2], weights, f"{cross}.w_o")
        _norm(layer.attention.layer_norm, weights, f"{name}.after_cross_attention.norm")
    _linear(layer.ffn.linear_0, weights, f"{name}.feed_forward.inner")
    _linear(layer.ffn.linear_1, weights, f"{name}.feed_forward.outer")
    _norm(layer.ffn.layer_norm, weights, f"{name}.after_feed_forward.norm")


def _linear(linear: Any, weights: TransformerWeights, *names: str) -> None:
    """Put maps of one input into one."""
    linear.weight = np.concatenate([as_floats(weights.arrays[f"{name}.weight"]) for name in names])
    linear.bias = np.concatenate([as_floats(weights.arrays[f"{name}.bias"]) for name in names])


def _norm(norm: Any, weights: TransformerWeights, name: str) -> None:
    norm.gamma = as_floats(weights.arrays[f"{name}.weight"])
    norm.beta = as_floats(weights.arrays[f"{name}.bias"])


def search_options(model: Outgoing) -> dict[str, Any]:
    """Return the options of `translate_batch` with which it searches as we do; a folder cannot hold them.

    Ours forbids the three tokens that no text has after the softmax, theirs before it. An empty translation is a
    hypothesis like others, which their least length of 1 would forbid: a search then ends later.
    """
    never = model.tokenizer.pieces([Tokenizer.pad_id, Tokenizer.bos_id], "tgt")
    return {
        "beam_size": model.beam,
        "length_penalty": model.settings.decode.length_penalty,
        "min_decoding_length": 0,
        "max_decoding_length": model.longest_target,
        "disable_unk": True,
        "suppress_sequences": [[each] for each in never],
    }


def _usage(model: Outgoing, name: str) -> str:
    writes = READS if model.tokenizer.joint else WRITES
    options = ", ".join(f"{key}={value!r}" for key, value in search_options(model).items())
    code = [
        "import ctranslate2, tokenizers  # pip install ctranslate2 tokenizers",
        "",
        f'read, write = (tokenizers.Tokenizer.from_file(f"{name}/{{file}}") for file in ("{READS}", "{writes}"))',
        "read.encode_special_tokens = True  # what looks like a special token in a text is text",
        f'translator = ctranslate2.Translator("{name}")',
        f"search = dict({options})",
        'sentences = [each.tokens for each in read.encode_batch(["…", "…"])]',
        "for each in translator.translate_batch(sentences, **search):",
        "    print(write.decode([write.token_to_id(token) for token in each.hypotheses[0]]))",
    ]
    search = "The options of the search must be given as above, since a folder cannot hold them."
    return usage(model, "CTranslate2", code, search)
