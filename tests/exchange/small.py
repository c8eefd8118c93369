"""Small models in folders, every parameter drawn, that several tests of the room take out."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from regard.build import build_model
from regard.checkpoint.weights import Checkpoint, save_model
from regard.config import DataSettings, DecodeSettings, ModelSettings, PartSettings, Settings, TextSettings
from regard.data.normalise import simplified_sides
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import train_tokenizer

ENGLISH = [
    "The river is wide, and the bridge is old.",
    "Who has built this bridge? My brother has.",
    "She reads every book that he brings, 2024 or not.",
    "It rains; the children stay inside and sing.",
]
CHINESE = ["河很宽，桥很旧。", "谁造了这座桥？我哥哥。", "他带来的书，她本本都读。", "下雨了，孩子们在屋里唱歌。"]
MODEL = ModelSettings(n_encoder_layers=2, n_decoder_layers=3, d_model=12, n_heads=3, d_ff=14, norm_place="before")
TEXT = TextSettings(vocab_size=360, symbols=("<bt>",), simplify=True, max_len=23)
DECODE = DecodeSettings(beam=5, max_ratio=0.0, max_extra=9, split="overlong", retry=False)  # a random model loops


def part(name: str, **options) -> PartSettings:
    return PartSettings(name, options)


@cache
def small_tokenizer(text: TextSettings) -> Tokenizer:
    """Learns pieces of eight sentences; Traditional Chinese is read as Simplified on the source."""
    pairs = list(zip(CHINESE, ENGLISH, strict=True))
    made = train_tokenizer(pairs, text, lambda said: None, seed=0)
    return Tokenizer(made.models, simplified_sides("zh", "en") if text.simplify else frozenset())


def small_checkpoint(
    model: ModelSettings = MODEL, text: TextSettings = TEXT, decode: DecodeSettings = DECODE
) -> Checkpoint:
    """Makes a model that translates zh to en into anything."""
    tokenizer = small_tokenizer(text)
    torch.manual_seed(5)
    made = build_model(model, (tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt"))).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    data = DataSettings(src_lang="zh", tgt_lang="en", train=("/home/someone/zh-en-tatoeba/train.tsv",))
    return Checkpoint(made, tokenizer, replace(Settings(), data=data, text=text, model=model, decode=decode))


def run_card(out: Path, monkeypatch, capsys) -> str:
    """Runs the code of a card on the Chinese sentences, where a reader would run it, and gives what it printed."""
    card = (out / "README.md").read_text(encoding="utf-8")
    code = card.split("```python\n")[1].split("```")[0]
    assert '["…", "…"]' in code
    monkeypatch.chdir(out.parent)
    capsys.readouterr()
    exec(code.replace('["…", "…"]', repr(CHINESE)), {})
    return capsys.readouterr().out


def save_small(folder: Path, checkpoint: Checkpoint | None = None) -> Path:
    """Writes a model, and names its folder."""
    save_model(folder, checkpoint or small_checkpoint(), {})
    return folder
