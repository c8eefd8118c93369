"""Text that is gone on with token by token, given out as it is written."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.batch import BOS, EOS, make_source
from regard.config import DecodeSettings, choose
from regard.decode.sample import check_chance, drawn, draws
from regard.model import DecoderOnly
from regard.model.choices import log_probs
from regard.model.decoder_only import DecoderOnlyState
from regard.text.tokenizer import Tokenizer

NEAR = 8  # ids before a piece that tell how it is written: whether a space stands there, whether a character is whole


def generate(
    model: DecoderOnly, prompt: Sequence[int], settings: DecodeSettings, room: int | None, sample: int = 0
) -> Iterator[tuple[int, float]]:
    """Writes after a prompt until EOS, or `max_extra` tokens; gives each as it comes, with its log-probability.

    Of the `n_best` samples of a seed this is the one with this number: what `sample.search` finds. `room` is the number
    of tokens that the model looks back at. When there are as many, the newest half is read again from its beginning on,
    and the rest is forgotten: half a window of lookback at the least, for two readings of each token.
    """
    check(settings, room, sample)
    n = len(prompt) + settings.max_extra
    device = next(model.parameters()).device
    luck = draws(make_source([[]]).to(device), [n], settings)[0, sample]
    ids, state = [BOS, *prompt], None
    for place in range(len(prompt), n):
        logits, state = _read(model, ids, state, room)
        token, gain = _chosen(logits, luck[place : place + 1], settings)
        yield token, gain
        if token == EOS:
            return
        ids.append(token)


def check(settings: DecodeSettings, room: int | None, sample: int) -> None:
    """Raises ValueError for what cannot be written."""
    choose({"greedy": 0, "sample": 0}, settings.method, "method of writing token by token")
    if settings.max_extra < 0:
        raise ValueError(f"max_extra must be 0 or more tokens after the prompt, got {settings.max_extra}")
    if room is not None and room < 2:
        raise ValueError(f"a model must look back at 2 tokens or more, got {room}")
    if not 0 <= sample < settings.n_best:
        raise ValueError(f"sample must lie in 0 … {settings.n_best - 1}, one of n_best, got {sample}")
    check_chance(settings)


@torch.inference_mode()
def _read(
    model: DecoderOnly, ids: list[int], state: DecoderOnlyState | None, room: int | None
) -> tuple[Float[Tensor, "1 V"], DecoderOnlyState]:
    """Reads what the model has not read yet, or what it shall go on with where there is no room for more."""
    device = next(model.parameters()).device
    wanted = len(ids) if state is None else state.length + 1
    if room is not None and wanted > room:
        ids, state = [BOS, *ids[1:][-(room // 2) :]], None
    if state is None:
        return model.go_on(torch.tensor([ids], device=device), model.start(make_source([[]]).to(device), 1))
    return model.go_on(torch.tensor([ids[-1:]], device=device), state)


@torch.inference_mode()
def _chosen(logits: Float[Tensor, "1 V"], luck: Float[Tensor, " 1"], settings: DecodeSettings) -> tuple[int, float]:
    said = log_probs(logits, None)
    token = said.argmax(-1) if settings.method == "greedy" else drawn(said, luck, settings)
    return int(token), float(said[0, token])


def as_text(tokenizer: Tokenizer, before: Sequence[int], tokens: Iterable[int]) -> Iterator[str]:
    """Gives what each token adds to the text; bytes of a character wait for its last."""
    near, waiting = list(before[-NEAR:]), []
    for token in tokens:
        waiting.append(token)
        old, new = (tokenizer.decode(ids) for ids in (near, near + waiting))
        if not new.endswith("\N{REPLACEMENT CHARACTER}"):
            yield new[len(old) :]
            near, waiting = (near + waiting)[-NEAR:], []
    if waiting:
        yield tokenizer.decode(near + waiting)[len(tokenizer.decode(near)) :]
