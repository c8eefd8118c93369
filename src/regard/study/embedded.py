"""What tokens and what positions bring to the stream before the first layer, each by itself."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.model.embedding import Embedding
from regard.position import POSITION
from regard.trace.tape import kept


@torch.no_grad()
def word_vectors(embedding: Embedding, ids: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
    """Gives tokens as they stand in the stream without their position; where codes are set beside, zeros are there."""
    vectors = _scaled(embedding, ids)
    return kept((embedding.position.embed(vectors, _zeros(ids, vectors)) - _codes(embedding, vectors, ids * 0))[0])


@torch.no_grad()
def code_vectors(embedding: Embedding, positions: Int[Tensor, " N"]) -> Float[Tensor, "N D"] | None:
    """Gives positions as they stand in the stream, which is what a token of zeros becomes; None where nothing is."""
    vectors = _scaled(embedding, torch.zeros_like(positions))
    places = _zeros(positions, vectors)
    if embedding.position.embed(vectors, places) is vectors:
        return None
    return kept(_codes(embedding, vectors, positions)[0])


def scheme_of(model: Any) -> str:
    """Names a Transformer's position scheme by its place in the table: that of the tokens, else that of the heads."""
    names = {made: name for name, made in POSITION.items()}
    found = [type(part.position) for part in (model.src, model.encoder.layers[0].attention)]
    return next((names[each] for each in found if names.get(each, "none") != "none"), "none")


def _scaled(embedding: Embedding, ids: Tensor) -> Float[Tensor, "1 N D"]:
    device = embedding.table.weight.device
    return embedding.table(ids[None].to(device)) * embedding.table.embedding_dim**0.5


def _zeros(ids: Tensor, like: Tensor) -> Int[Tensor, "1 N"]:
    return torch.zeros_like(ids)[None].to(like.device)


def _codes(embedding: Embedding, vectors: Tensor, positions: Tensor) -> Tensor:
    return embedding.position.embed(torch.zeros_like(vectors), positions[None].to(vectors.device))
