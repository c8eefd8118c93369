"""MarianMT's relatives, each written by its own classes after a little training: BART, Pegasus, mBART, NLLB, M2M100."""

import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BartTokenizer,
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    NllbTokenizer,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PegasusTokenizer,
)

from tests.foreign.theirs import (
    Theirs,
    cutter,
    draw_all,
    numbered,
    pieces_of,
    save,
    sentences,
    translated,
    write_json,
)

SIZES = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "max_position_embeddings": 40}
SIZES |= {
    f"{side}_{name}": size
    for side in ("encoder", "decoder")
    for name, size in (("attention_heads", 4), ("ffn_dim", 48))
}
TEXTS = sentences(300, seed=1)
BOTH = [*TEXTS, *map(translated, TEXTS)]


def scores_of(model: bytes) -> list[tuple[str, float]]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = [i for i in range(processor.vocab_size()) if not processor.is_control(i) and not processor.is_unknown(i)]
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in ids]


@cache
def merges(byte_level: bool) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Learns a vocabulary of byte pairs, and the merges that make it."""
    learned = tokenizers.Tokenizer(tokenizers.models.BPE())
    cutters = tokenizers.pre_tokenizers
    learned.pre_tokenizer = cutters.ByteLevel(add_prefix_space=False) if byte_level else cutters.Metaspace()
    alphabet = cutters.ByteLevel.alphabet() if byte_level else []
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    size = 340 if byte_level else 120
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    learned.train_from_iterator(BOTH, trainer)
    made = learned.to_str()
    table = json.loads(made)["model"]
    return table["vocab"], [tuple(pair) for pair in table["merges"]]


def bart(folder: Path) -> tuple[Any, Any]:
    vocab, pairs = merges(True)
    tokenizer = BartTokenizer(vocab={**vocab, "<mask>": len(vocab)}, merges=pairs)
    config = BartConfig(vocab_size=len(tokenizer), forced_bos_token_id=0, **SIZES)
    return BartForConditionalGeneration(config), tokenizer


def pegasus(folder: Path) -> tuple[Any, Any]:
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *scores_of(cutter(False, 90)), *scores_of(cutter(True, 80))]
    tokenizer = PegasusTokenizer(vocab=list(dict(vocab).items()), additional_special_tokens=[], offset=3)
    config = PegasusConfig(vocab_size=len(tokenizer), scale_embedding=True, activation_function="relu", **SIZES)
    return PegasusForConditionalGeneration(config), tokenizer


def mbart(folder: Path) -> tuple[Any, Any]:
    pieces = dict([*scores_of(cutter(False, 90)), *scores_of(cutter(True, 80))])
    vocab = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *pieces.items()]
    tokenizer = MBart50Tokenizer(vocab=vocab, src_lang="en_XX", tgt_lang="fr_XX")
    config = MBartConfig(vocab_size=len(tokenizer), scale_embedding=True, decoder_start_token_id=2, **SIZES)
    return MBartForConditionalGeneration(config), tokenizer


def nllb(folder: Path) -> tuple[Any, Any]:
    vocab, pairs = merges(False)
    tokenizer = NllbTokenizer(vocab=vocab, merges=pairs, src_lang="eng_Latn", tgt_lang="fra_Latn")
    return M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(tokenizer), **SIZES)), tokenizer


def m2m100(folder: Path) -> tuple[Any, Any]:
    model = cutter(False, 90)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    vocab = ["<s>", "<pad>", "</s>", "<unk>", *pieces_of(model), *(f"@{n}@" for n in range(5))]
    write_json(folder / "vocab.json", numbered(vocab))
    files = [str(folder / name) for name in ("vocab.json", "sentencepiece.bpe.model")]
    tokenizer = M2M100Tokenizer(*files, src_lang="en", tgt_lang="fr")
    return M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(vocab) + 108, **SIZES)), tokenizer


# What makes most sentences end before the longest length, and few at once.
ENDS = {"BART": 4.0, "Pegasus": 6.0, "mBART": 6.0, "NLLB": 8.0, "M2M100": 5.0}
KINDS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "BART": bart,
    "Pegasus": pegasus,
    "mBART": mbart,
    "NLLB": nllb,
    "M2M100": m2m100,
}
LANGUAGES = {"mBART": ("en_XX", "fr_XX"), "NLLB": ("eng_Latn", "fra_Latn"), "M2M100": ("en", "fr")}


def let_end(model: Any, more: float) -> None:
    """Adds a number to the logit of the end: by the bias of logits, or by what the last norm adds to every vector."""
    eos = model.config.eos_token_id
    with torch.no_grad():
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias[0, eos] += more
        else:
            common = model.model.decoder.layer_norm.bias
            model.model.shared.weight[eos] += more * common / common.square().sum()


def sibling(kind: str, folder: Path) -> Theirs:
    """Writes a model of a kind, every number drawn, that ends its sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(5)
        model, tokenizer = KINDS[kind](folder)
        let_end(draw_all(model), ENDS[kind])
        search = {"num_beams": 5, "max_length": 38, "early_stopping": True}
        if kind in LANGUAGES:
            mark = "__{}__" if kind == "M2M100" else "{}"
            search["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(mark.format(LANGUAGES[kind][1]))
        return save(folder, model, tokenizer, **search)
