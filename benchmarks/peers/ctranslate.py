"""CTranslate2, with the weights of a Marian model that was made at random."""

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
from ctranslate2.converters.transformers import BartLoader
from transformers import MarianMTModel

from .work import Task

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]


def make_translator(marian: MarianMTModel, precision: str, threads: int, workers: int) -> ctranslate2.Translator:
    """Converts the model in memory; CTranslate2 reads it from a folder that is gone again afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(marian, precision, names(marian.config.vocab_size), Path(folder))
        return ctranslate2.Translator(folder, intra_threads=threads, inter_threads=workers, compute_type=precision)


def write_model(marian: MarianMTModel, precision: str, words: list[str], folder: Path, pre_norm: bool = False) -> None:
    """Converts the model into a folder of CTranslate2's."""
    marian = copy.deepcopy(marian)  # quantising scales the very tensors that it is given
    marian.config.normalize_before = pre_norm
    marian.config.normalize_embedding = False
    loader = BartLoader()  # Marian's own would cut off a <pad> that stands last, which ours does not
    spec = loader.get_model_spec(marian)
    config: Any = spec.config
    config.bos_token, config.eos_token, config.unk_token, config.decoder_start_token = "<s>", "</s>", "<unk>", "<s>"
    loader.set_vocabulary(spec, words)
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    spec.save(str(folder))


def names(vocab_size: int) -> list[str]:
    """Names each id, since CTranslate2 takes words."""
    return [*SPECIAL, *(f"_{i}" for i in range(len(SPECIAL), vocab_size))]


def decode_ctranslate(
    translator: ctranslate2.Translator, beam: int, vocab_size: int
) -> Callable[[list[Task]], list[list[list[int]]]]:
    """Makes the call that decodes batches, as many at a time as the translator has workers."""
    words = names(vocab_size)
    ids = {word: i for i, word in enumerate(words)}

    def call(tasks: list[Task]) -> list[list[list[int]]]:
        running = [
            translator.translate_batch(
                [[*(words[i] for i in source), "</s>"] for source in task.sources],
                beam_size=beam,
                min_decoding_length=task.n_tokens,
                max_decoding_length=task.n_tokens,
                asynchronous=True,
            )
            for task in tasks
        ]
        return [[[ids[word] for word in each.result().hypotheses[0]] for each in batch] for batch in running]

    return call
