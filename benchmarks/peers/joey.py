"""Joey NMT at random weights.

Its pins (protobuf below 3.21) do not go together with today's tensorboard, so that it is left out unless it was put
beside by hand: `pip install --no-deps joeynmt==2.3.0 subword-nmt "importlib-metadata<9" zipp`.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from joeynmt.batch import Batch as JoeyBatch  # pyright: ignore[reportMissingImports]
from joeynmt.model import build_model  # pyright: ignore[reportMissingImports]
from joeynmt.search import search  # pyright: ignore[reportMissingImports]
from joeynmt.vocabulary import Vocabulary  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn

from regard.batch import Batch, make_source
from regard.config import ModelSettings
from regard.padding import BOS, EOS, PAD, UNK

from .work import Task


def make_joey(sizes: ModelSettings, vocab_size: int) -> nn.Module:
    """Makes the model; its dropout cannot spare the attention weights."""
    words = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "sep_token": None}
    # Joey counts UNK first and PAD second; which is which does not move the time.
    ids = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3, "sep_id": None}
    vocabulary = Vocabulary([], SimpleNamespace(**words, **ids, lang_tags=[]))
    more = [f"_{i}" for i in range(len(vocabulary._itos), vocab_size)]
    vocabulary._itos += more
    vocabulary._stoi.update({word: i for i, word in enumerate(vocabulary._itos)})
    side = {
        "type": "transformer",
        "num_heads": sizes.n_heads,
        "embeddings": {"embedding_dim": sizes.d_model, "scale": True, "dropout": sizes.dropout},
        "hidden_size": sizes.d_model,
        "ff_size": sizes.d_ff,
        "dropout": sizes.dropout,
        "layer_norm": "post",
    }
    encoder = {**side, "num_layers": sizes.n_encoder_layers}
    decoder = {**side, "num_layers": sizes.n_decoder_layers}
    tied = {"tied_embeddings": True, "tied_softmax": True}
    model = build_model({"encoder": encoder, "decoder": decoder, **tied}, vocabulary, vocabulary)
    model.loss_function = ("crossentropy", 0.0)
    return model


def decode_joey(model: nn.Module, beam: int) -> Callable[[list[Task]], list[Any]]:
    """Makes the call that decodes batches, EOS kept out until the end."""

    def call(tasks: list[Task]) -> list[Any]:
        written = []
        for task in tasks:
            batch = _batch(make_source(task.sources).ids, None)
            options = {"min_output_length": task.n_tokens, "beam_size": beam, "beam_alpha": 1.0}
            found, _, _ = search(model, batch, max_output_length=task.n_tokens, **options)
            written.append(found)
        return written

    model.eval()
    return call


def joey_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Gives the mean of −log p over the real tokens."""
    sentences = torch.cat([batch.tgt.inputs[:, :1], batch.tgt.labels], dim=1)
    made = _batch(batch.src.ids, sentences)
    return model(return_type="loss", **vars(made))[0] / batch.tgt.n_tokens


def _batch(src: Tensor, tgt: Tensor | None) -> Any:
    """Makes Joey's batch; padding takes the id that ours gives to UNK, which no sentence here holds."""
    assert (BOS, EOS) == (2, 3), "Joey's BOS and EOS must be ours"
    src = src.masked_fill(src == PAD, UNK)
    tgt = None if tgt is None else tgt.masked_fill(tgt == PAD, UNK)
    lengths = (src != UNK).sum(1)
    return JoeyBatch(src, lengths, None, tgt, None, torch.arange(len(src)), src.device, UNK, EOS)
