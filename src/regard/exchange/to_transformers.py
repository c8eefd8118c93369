"""Our models as folders that Hugging Face's AutoModelForSeq2SeqLM and AutoTokenizer open.

Pre-norm is what Pegasus computes, post-norm what Marian does; both scale embeddings by √D, add a table of positions to
them, and keep that table in the file, so that ours takes the place of their sinusoids, whose features lie otherwise.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from regard.checkpoint import write_json
from regard.checkpoint.arrays import write_arrays
from regard.data.tokenizer import Tokenizer
from regard.engine.native_weights import TransformerWeights, as_floats
from regard.exchange.outgoing import Outgoing, outgoing_card, position_table, usage, write_table
from regard.exchange.tokenizer_json import tokenizer_json
from regard.foreign.architecture import ATTENTIONS, MAPS, OTHERS, PARTS
from regard.shapes import Array, np

CLASSES = {True: ("pegasus", "PegasusForConditionalGeneration"), False: ("marian", "MarianMTModel")}  # by pre-norm
WEIGHTS = "model.safetensors"


def write_transformers(model: Outgoing, part: Path, name: str, precision: str) -> list[str]:
    """Write all files of a folder, and return what a person has to fill in in its card."""
    arrays = {key: np.ascontiguousarray(array) for key, array in named_arrays(model)}
    write_arrays(part / WEIGHTS, arrays, {"format": "pt"}, save_file)
    write_json(part / "config.json", config(model))
    write_json(part / "generation_config.json", generation_config(model))
    write_tokenizer(model, part)
    card, missing = outgoing_card(model, name, "transformers", _usage(model, name))
    (part / "README.md").write_text(card, encoding="utf-8")
    return missing


def write_tokenizer(model: Outgoing, part: Path) -> None:
    """Write what AutoTokenizer reads."""
    tokenizer = model.tokenizer
    table = tokenizer_json(tokenizer.models[0], "src" in tokenizer.simplified)
    write_table(part / "tokenizer.json", table)
    pad, unk, bos, eos = tokenizer.pieces(range(Tokenizer.eos_id + 1), "src")
    write_json(
        part / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": model.settings.text.max_len + 1,
            "padding_side": "right",
            "clean_up_tokenization_spaces": False,
            "split_special_tokens": True,
            "model_input_names": ["input_ids", "attention_mask"],
            **{"pad_token": pad, "unk_token": unk, "bos_token": bos, "eos_token": eos},
        },
    )


def special_ids() -> dict[str, int]:
    """Return the ids that generation begins, ends and pads with."""
    ids = {"pad_token_id": Tokenizer.pad_id, "bos_token_id": Tokenizer.bos_id, "eos_token_id": Tokenizer.eos_id}
    return {**ids, "decoder_start_token_id": Tokenizer.bos_id}


def config(model: Outgoing) -> dict[str, Any]:
    """Return the settings of the class that computes our model."""
    made, weights = model.settings.model, model.weights
    kind, name = CLASSES[weights.norm_first]
    n_encoder, n_decoder = weights.n_layers
    sizes: dict[str, Any] = {"vocab_size": len(weights.output_table), "d_model": weights.d_model}
    for side, n_layers in (("encoder", n_encoder), ("decoder", n_decoder)):
        sizes |= {f"{side}_layers": n_layers, f"{side}_layerdrop": 0.0}
        sizes |= {f"{side}_attention_heads": weights.n_heads, f"{side}_ffn_dim": made.d_ff}
    if kind == "marian":
        sizes |= {"decoder_vocab_size": len(weights.output_table), "share_encoder_decoder_embeddings": _tied(weights)}
    return {
        "architectures": [name],
        "model_type": kind,
        "is_encoder_decoder": True,
        **sizes,
        "activation_function": weights.activation,
        "dropout": made.dropout,
        "activation_dropout": made.dropout,
        "attention_dropout": 0.0,
        "max_position_embeddings": model.n_positions,
        "scale_embedding": weights.scale_embedding,
        "tie_word_embeddings": _tied(weights),
        "forced_eos_token_id": None,
        "use_cache": True,
        "dtype": "float32",
        **special_ids(),
    }


def generation_config(model: Outgoing) -> dict[str, Any]:
    """Return the settings with which `generate` searches as we do.

    `early_stopping` ends a search when `num_beams` hypotheses have ended; ours may end sooner, when none can get
    better, which changes no result. `suppress_tokens` are those that we never write.
    """
    return {
        "num_beams": model.beam,
        "early_stopping": model.beam > 1,
        "length_penalty": model.settings.decode.length_penalty,
        "max_length": model.longest_target + 1,  # theirs counts the BOS
        "suppress_tokens": list(range(Tokenizer.eos_id)),
        "forced_eos_token_id": None,
        **special_ids(),
    }


def _tied(weights: TransformerWeights) -> bool:
    return weights.src_table is weights.tgt_table and weights.tgt_table is weights.output_table


def named_arrays(model: Outgoing) -> Iterator[tuple[str, Array]]:
    """Yield our arrays under their names; a table that all share once."""
    weights = model.weights
    bias = np.zeros(len(weights.output_table)) if weights.output_bias is None else as_floats(weights.output_bias)
    yield "final_logits_bias", bias.astype(np.float32).reshape(1, -1)
    if weights.norm_first or _tied(weights):
        yield "model.shared.weight", as_floats(weights.src_table)
    if not _tied(weights):
        yield "model.encoder.embed_tokens.weight", as_floats(weights.src_table)
        yield "model.decoder.embed_tokens.weight", as_floats(weights.tgt_table)
        yield "lm_head.weight", as_floats(weights.output_table)
    for side, codes in (("encoder", weights.src_codes), ("decoder", weights.tgt_codes)):
        yield f"model.{side}.embed_positions.weight", position_table(codes, model.n_positions, weights.d_model)
    for side, n_layers in zip(("encoder", "decoder"), weights.n_layers, strict=True):
        for n in range(n_layers):
            yield from _layer(weights.arrays, f"{side}.layers.{n}", side)
        if weights.norm_first:
            for end in PARTS:
                yield f"model.{side}.layer_norm.{end}", as_floats(weights.arrays[f"{side}.last_norm.{end}"])


def _layer(arrays: Mapping[str, Any], layer: str, side: str) -> Iterator[tuple[str, Array]]:
    names = dict(OTHERS)
    for ours, theirs in ATTENTIONS.items():
        if side == "decoder" or ours == "attention":
            names |= {f"{ours}.{key}": f"{theirs}.{value}" for key, value in MAPS.items()}
            names[f"after_{ours}.norm"] = f"{theirs}_layer_norm"
    for ours, theirs in names.items():
        for end in PARTS:
            yield f"model.{layer}.{theirs}.{end}", as_floats(arrays[f"{layer}.{ours}.{end}"])


def _usage(model: Outgoing, name: str) -> str:
    code = [
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
        "",
        f'tokenizer, model = AutoTokenizer.from_pretrained("{name}"), AutoModelForSeq2SeqLM.from_pretrained("{name}")',
        'sentences = tokenizer(["…", "…"], padding=True, return_tensors="pt")',
        "print(tokenizer.batch_decode(model.generate(**sentences), skip_special_tokens=True))",
    ]
    search = "`generation_config.json` holds the search that its scores were measured with."
    return usage(model, "Transformers", code, search)
