"""How fast does an imported MarianMT model run, beside Transformers and CTranslate2 on the same folder?

The model has the shape of OPUS-MT's: 6 + 6 layers, width 512, 60,000 pieces; its weights are drawn, and no sentence
ends before its last token, so that all programs write equally many. One thread; the ceiling is a large product.
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import sentencepiece
import torch
from ctranslate2.converters import TransformersConverter
from measure import interleave, keep, large_product
from rich.console import Console
from rich.table import Table
from transformers import MarianConfig, MarianMTModel, MarianTokenizer
from transformers.utils import logging

from regard.foreign.incoming import read_incoming, write_incoming
from regard.pipeline import load_translator
from regard.study.repeats import signature

N_PIECES, EOS, S, T = 60_000, 0, 24, 32
SEARCHES = {"greedy": 1, "beam 5": 5}


def write_model(folder: Path) -> None:
    """Writes a folder as Transformers does, with a small SentencePiece model and a large table."""
    words = [
        "the",
        "river",
        "is",
        "wide",
        "and",
        "old",
        "who",
        "has",
        "built",
        "this",
        "bridge",
        "my",
        "brother",
        "reads",
        "every",
        "book",
    ]
    lines = [" ".join(words[i % 7 : i % 7 + 8]) for i in range(200)]
    for name in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_prefix=str(folder / name),
            vocab_size=60,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    known = [processor.id_to_piece(i) for i in range(3, processor.vocab_size())]
    pieces = ["</s>", "<unk>", *known, *(f"@{n}@" for n in range(N_PIECES - len(known) - 3)), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    special = {"pad_token_id": N_PIECES - 1, "decoder_start_token_id": N_PIECES - 1, "eos_token_id": EOS}
    shape = {f"{side}_{part}": n for side in ("encoder", "decoder") for part, n in (("layers", 6), ("ffn_dim", 2048))}
    heads = {f"{side}_attention_heads": 8 for side in ("encoder", "decoder")}
    more = {"activation_function": "swish", "scale_embedding": True, "max_position_embeddings": 512, "d_model": 512}
    torch.manual_seed(0)
    config = MarianConfig(vocab_size=N_PIECES, forced_eos_token_id=None, **special, **shape, **heads, **more)
    model = MarianMTModel(config).eval()
    model.final_logits_bias[0, EOS] = -1e4
    model.generation_config.update(max_length=T + 1, bad_words_ids=[[N_PIECES - 1]], forced_eos_token_id=None)
    model.save_pretrained(folder)
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    MarianTokenizer(*files, source_lang="en", target_lang="fr").save_pretrained(folder)


def ours(folder: Path, precision: str, rows: list[list[int]], beam: int) -> Callable[[], Any]:
    """Returns a call of our engine."""
    translator = load_translator(folder, precision)
    settings = replace(translator.settings, beam=beam, max_extra=T, batch_tokens=1 << 20, early_stopping="full")
    sources = [[i + 6 for i in row] for row in rows]
    return lambda: list(translator.engine.search(sources, settings))


def transformers(folder: Path, rows: list[list[int]], beam: int) -> Callable[[], Any]:
    """Returns a call of `generate`."""
    model: Any = MarianMTModel.from_pretrained(folder).eval()
    ids = torch.tensor([[*row, EOS] for row in rows])
    seen = torch.ones_like(ids)
    return lambda: model.generate(ids, attention_mask=seen, num_beams=beam, max_length=T + 1)


def theirs(folder: Path, precision: str, rows: list[list[int]], beam: int, pieces: list[str]) -> Callable[[], Any]:
    """Returns a call of CTranslate2's translator."""
    translator = ctranslate2.Translator(str(folder), compute_type=precision, intra_threads=1, inter_threads=1)
    tokens = [[*(pieces[i] for i in row), "</s>"] for row in rows]
    lengths = {"min_decoding_length": T, "max_decoding_length": T, "max_batch_size": 1024}
    return lambda: translator.translate_batch(tokens, beam_size=beam, **lengths)


def main() -> None:
    """Measures, shows and keeps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON line")
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    product, n_operations = large_product("cpu", torch.float32)
    table, found = Table(title=f"tokens a second, {T} for each of the sentences of {S}, one thread"), []
    for head in ("search", "batch", "ours", "ours, int8", "CTranslate2", "CTranslate2, int8", "Transformers"):
        table.add_column(head, justify="right")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        model, mine, converted = home / "opus-mt-en-fr", home / "ours", home / "converted"
        model.mkdir()
        write_model(model)
        write_incoming(read_incoming(model), mine)
        TransformersConverter(str(model)).convert(str(converted))
        pieces = list(json.loads((model / "vocab.json").read_text()))
        for search, beam in SEARCHES.items():
            for batch in (1, 32):
                rows = torch.randint(
                    2, N_PIECES - 1, (batch, S - 1), generator=torch.Generator().manual_seed(1)
                ).tolist()
                calls: dict[str, Callable[[], Any]] = {
                    **{f"ours {each}": ours(mine, each, rows, beam) for each in ("float32", "int8")},
                    **{
                        f"ctranslate2 {each}": theirs(converted, each, rows, beam, pieces)
                        for each in ("float32", "int8")
                    },
                    "transformers float32": transformers(model, rows, beam),
                }
                times = interleave({**calls, "product": product}, "cpu", 0.0, given.rounds)
                rates = {way: batch * T / times[way].median for way in calls}
                spread = {way: (times[way].high - times[way].low) / times[way].median for way in calls}
                ceiling = n_operations / times["product"].median / 1e9
                found.append({"search": search, "batch": batch, "rates": rates, "spread": spread, "gflops": ceiling})
                table.add_row(search, str(batch), *(f"{rate:,.0f}" for rate in rates.values()))
    Console(width=140).print(table)
    sign = signature("cpu", source=S, target=T, pieces=N_PIECES, versions={"ctranslate2": ctranslate2.__version__})
    keep("imported-cpu", {"rows": found, "signature": sign}, given.results)


if __name__ == "__main__":
    main()
