"""Folders for a server: a study with known numbers, a model that generates text."""

from dataclasses import asdict
from pathlib import Path

import torch

from regard.build import build_model
from regard.checkpoint import write_json
from regard.checkpoint.weights import Checkpoint, save_model
from regard.config import DataSettings, ModelSettings, PartSettings, Settings, TextSettings
from regard.study.ablate import RESULTS
from regard.study.ablate_runs import AblationRow
from tests.pipeline.writers import TOKENIZER, V

BLEU = {
    "baseline": (30.0, 32.0),
    "rotary positions": (33.0, 35.0),
    "no positions": (12.0, 13.0),
    "16 heads": (31.0, 30.0),
}
PART = {"baseline": "", "rotary positions": "position", "no positions": "position", "16 heads": "heads"}


def plant_study(folder: Path) -> Path:
    """Writes two seeds of four variants, and one variant that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [planted(name, seed, bleu) for name, each in BLEU.items() for seed, bleu in enumerate(each)]
    rows.append(AblationRow("broken", "norm", ["model.norm=odd"], 0, "d", error="ValueError: unknown norm 'odd'"))
    write_json(folder / RESULTS, {"seeds": [0, 1], "rows": [asdict(row) for row in rows]})
    return folder


def planted(name: str, seed: int, bleu: float) -> AblationRow:
    curve = [{"step": step, "loss": 5.0 - step / 500, "bleu": bleu * step / 1000, "chrf": 1.0} for step in (500, 1000)]
    return AblationRow(
        variant=name,
        part=PART[name],
        changes=[] if name == "baseline" else [f"model.changed={name}"],
        seed=seed,
        digest="d",
        parameters=1_234_567,
        tokens_per_second=50_000.0 + 1000 * seed,
        seconds=60.0,
        loss=1.5,
        perplexity=4.48,
        bleu_valid=bleu - 1,
        bleu_test=bleu,
        chrf_test=50.0,
        reason="all steps are done",
        curve=curve,
    )


def plant_writer(folder: Path) -> Path:
    """Saves a decoder with random parameters."""
    torch.manual_seed(5)
    sizes = {"n_encoder_layers": 0, "n_decoder_layers": 2, "d_model": 12, "n_heads": 2, "d_ff": 9, "dropout": 0.0}
    made = Settings(
        model=ModelSettings(family="decoder", tie="none", position=PartSettings("rotary"), **sizes),
        data=DataSettings(form="text", src_lang="en", tgt_lang="en"),
        text=TextSettings(kind="characters", max_len=64),
    )
    model = build_model(made.model, (V, V)).eval()
    save_model(folder, Checkpoint(model, TOKENIZER, made), {})
    return folder
