"""Folders that Transformers itself writes: small models of each kind, drawn or trained, with SentencePiece models."""

import io
import json
import random
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel, MarianTokenizer
from transformers.utils import logging

logging.disable_progress_bar()
TEXT = """the river is wide and old bridge who has built this my brother she reads every book rain children stay
inside sing road hill little green house window open"""
WORDS = TEXT.split()


def sentences(n: int, seed: int, longest: int = 7) -> list[str]:
    draw = random.Random(seed)
    return [
        " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, longest))) + draw.choice(".?!") for _ in range(n)
    ]


def translated(sentence: str) -> str:
    """Says the words from the last to the first, in capitals."""
    return " ".join(reversed(sentence[:-1].upper().split())) + sentence[-1]


@cache
def cutter(target: bool, size: int) -> bytes:
    texts = sentences(400, seed=1)
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(map(translated, texts) if target else texts),
        model_writer=made,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return made.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = [i for i in range(processor.vocab_size()) if not processor.is_control(i) and not processor.is_unknown(i)]
    return [processor.id_to_piece(i) for i in ids]


def numbered(pieces: list[str]) -> dict[str, int]:
    return {piece: i for i, piece in enumerate(pieces)}


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


@dataclass(frozen=True, eq=False)
class Theirs:
    """A model of theirs with its tokenizer, and the folder that both were saved to."""

    folder: Path
    model: Any
    tokenizer: Any

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text).input_ids

    def generate(self, texts: list[str], **options: Any) -> list[list[int]]:
        """Writes what follows the token that decoders begin with, up to the end."""
        batch = self.tokenizer(texts, padding=True, return_tensors="pt")
        found = self.model.generate(**batch, **options)[:, 1:].tolist()
        eos, pad = self.model.config.eos_token_id, self.model.config.pad_token_id
        return [ids[: ids.index(eos)] if eos in ids else [i for i in ids if i != pad] for ids in found]


SIZES = {"encoder_layers": 2, "decoder_layers": 3, "d_model": 20, "max_position_embeddings": 48}
SIZES |= {
    f"{side}_{name}": size
    for side in ("encoder", "decoder")
    for name, size in (("attention_heads", 5), ("ffn_dim", 28))
}


def marian_tokenizer(folder: Path, separate: bool = False, codes: tuple[str, ...] = ()) -> MarianTokenizer:
    """Writes two SentencePiece models, and tables in which some of their pieces are missing."""
    models = {"source.spm": cutter(False, 90), "target.spm": cutter(True, 60)}
    for name, model in models.items():
        (folder / name).write_bytes(model)
    read, written = (pieces_of(model) for model in models.values())
    read.remove("▁my")  # which is then unknown
    joint = ["</s>", "<unk>", *(f">>{code}<<" for code in codes), *dict.fromkeys(read + written), "<pad>"]
    write_json(folder / "vocab.json", numbered(joint))
    if separate:
        longest = max(len(read), len(written))  # so that both have one id for padding
        read, written = ([*each, *(f"@{n}@" for n in range(len(each), longest))] for each in (read, written))
        write_json(folder / "vocab.json", numbered(["</s>", "<unk>", *read, "<pad>"]))
        write_json(folder / "target_vocab.json", numbered(["</s>", "<unk>", *written, "<pad>"]))
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sacremoses is recommended
        more = {"target_vocab_file": str(folder / "target_vocab.json"), "separate_vocabs": True} if separate else {}
        return MarianTokenizer(*files, source_lang="en", target_lang="fr", **more)


def draw_all(model: Any) -> Any:
    """Draws every parameter, and the bias of logits, so that nothing is as it was made."""
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.3 * torch.randn_like(parameter)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    return model.eval()


def save(folder: Path, model: Any, tokenizer: Any, **search: Any) -> Theirs:
    model.generation_config.update(**search)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Theirs(folder, model, tokenizer)


def marian(
    folder: Path, separate: bool = False, codes: tuple[str, ...] = (), search: Any = None, **config: Any
) -> Theirs:
    """Writes a MarianMT model with drawn weights."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = marian_tokenizer(folder, separate, codes)
    sizes = {"vocab_size": len(tokenizer.encoder)}
    pad = tokenizer.pad_token_id
    if separate:
        sizes["decoder_vocab_size"] = len(tokenizer.target_encoder)
        pad = tokenizer.target_encoder["<pad>"]
        assert pad == tokenizer.pad_token_id, "both sides have one padding"
    special = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0, "forced_eos_token_id": 0}
    options = {"activation_function": "swish", "scale_embedding": True, **special, **sizes, **SIZES, **config}
    torch.manual_seed(5)
    model = draw_all(MarianMTModel(MarianConfig(**options)))
    return save(folder, model, tokenizer, **(search or {"num_beams": 5, "max_length": 40, "bad_words_ids": [[pad]]}))


def train(theirs: Theirs, n_steps: int) -> None:
    """Teaches a model to say sentences backwards, and saves it anew."""
    model, tokenizer = theirs.model, theirs.tokenizer
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=n_steps)
    for step in range(n_steps):
        texts = sentences(64, seed=100 + step)
        batch = tokenizer(texts, text_target=list(map(translated, texts)), padding=True, return_tensors="pt")
        labels: Tensor = batch["labels"]
        batch["labels"] = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval().save_pretrained(theirs.folder)


@cache
def trained_marian(folder: Path) -> Theirs:
    """Writes a MarianMT model that has learned its task well enough to end its sentences."""
    sizes = {"d_model": 48, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "encoder_attention_heads": 4}
    theirs = marian(folder, **sizes, decoder_attention_heads=4, decoder_layers=2)
    theirs.model.train()
    train(theirs, 250)
    return theirs
