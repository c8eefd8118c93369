"""Other people's models: what a Hugging Face model looked at while it read and wrote."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import nan
from typing import Any

import torch
from torch import Tensor

from regard.trace.given import GivenLook
from regard.trace.made import make_given
from regard.trace.replay import N_ALTERNATIVES
from regard.trace.tape import kept
from regard.trace.trace import Option, Step, Trace


def trace_hf(model: Any, tokenizer: Any, text: str, output: str | None = None, max_new_tokens: int = 64) -> Trace:
    """Traces an encoder–decoder, a decoder or an encoder on one text.

    What is written is `output`, or what `model.generate` says in at most `max_new_tokens`; then all is read once, with
    the weights as the model itself gives them. Its attention is set to `eager` for that, and set back.
    """
    read = tokenizer(text, return_tensors="pt").to(model.device)
    with torch.no_grad(), _eager(model):
        if model.config.is_encoder_decoder:
            return _trace_both(model, tokenizer, text, read, _written(model, tokenizer, read, output, max_new_tokens))
        if model.can_generate():
            return _trace_decoder(model, tokenizer, text, _continued(model, tokenizer, read, output, max_new_tokens))
        return _trace_encoder(model, tokenizer, text, read)


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    """Lets a model build its weights for a while, at rest."""
    config, training = model.config, model.training
    before = {"": config._attn_implementation}
    for name in config.sub_configs:
        if getattr(config, name, None) is not None:
            before[name] = getattr(config, name)._attn_implementation
    model.set_attn_implementation("eager")
    model.eval()
    try:
        yield
    finally:
        model.set_attn_implementation(before)
        model.train(training)


def _trace_both(model: Any, tokenizer: Any, text: str, read: Any, ids: Tensor) -> Trace:
    seen = model(**read, decoder_input_ids=ids[:, :-1], output_attentions=True)
    looks = (
        *_looks("encoder", seen.encoder_attentions),
        *_looks("decoder", seen.decoder_attentions),
        *_looks("cross", seen.cross_attentions),
    )
    steps = _steps(tokenizer, seen.logits[0], ids[0, 1:])
    sides = _pieces(tokenizer, read["input_ids"][0]), _pieces(tokenizer, ids[0, :-1])
    return make_given(looks, *sides, steps, text, tokenizer.decode(ids[0], skip_special_tokens=True))


def _trace_decoder(model: Any, tokenizer: Any, text: str, ids: Tensor) -> Trace:
    """Shows all tokens; what follows the last is the likeliest."""
    seen = model(input_ids=ids, output_attentions=True)
    steps = _steps(tokenizer, seen.logits[0], torch.cat([ids[0, 1:], seen.logits[0, -1:].argmax(-1)]))
    written = tokenizer.decode(ids[0], skip_special_tokens=True)
    return make_given(_looks("decoder", seen.attentions), (), _pieces(tokenizer, ids[0]), steps, text, written)


def _trace_encoder(model: Any, tokenizer: Any, text: str, read: Any) -> Trace:
    seen = model(**read, output_attentions=True)
    return make_given(_looks("encoder", seen.attentions), _pieces(tokenizer, read["input_ids"][0]), (), (), text)


def _written(model: Any, tokenizer: Any, read: Any, output: str | None, n: int) -> Tensor:
    """Gives the target's ids, the one that decoders begin with included."""
    if output is None:
        return model.generate(**read, max_new_tokens=n)[:1]
    ids = tokenizer(text_target=output, return_tensors="pt").input_ids.to(model.device)
    start = model.generation_config.decoder_start_token_id
    start = model.config.decoder_start_token_id if start is None else start
    return torch.cat([ids.new_full((1, 1), start), ids], dim=1)


def _continued(model: Any, tokenizer: Any, read: Any, output: str | None, n: int) -> Tensor:
    """Gives the ids of the text with what follows it."""
    if output is None:
        return model.generate(**read, max_new_tokens=n)[:1]
    if not output:
        return read["input_ids"]
    follows = tokenizer(output, return_tensors="pt", add_special_tokens=False).input_ids.to(model.device)
    return torch.cat([read["input_ids"], follows], dim=1)


def _looks(kind: str, layers: Sequence[Tensor]) -> tuple[GivenLook, ...]:
    return tuple(GivenLook(kind, number, kept(weights[0])) for number, weights in enumerate(layers))


def _pieces(tokenizer: Any, ids: Tensor) -> list[str]:
    return [str(piece) for piece in tokenizer.convert_ids_to_tokens(ids.tolist())]


def _steps(tokenizer: Any, logits: Tensor, said: Tensor) -> list[Step]:
    """Lists what was said with its log-probability in this reading; what a search had is not known."""
    every = logits.float().log_softmax(-1).cpu()
    gains, tokens = every.topk(min(N_ALTERNATIVES, every.shape[-1]))
    here = every.gather(1, said.cpu()[:, None])[:, 0].tolist()
    return [
        Step(piece, gain, nan, tuple(Option(*each) for each in zip(_pieces(tokenizer, row), most, strict=True)))
        for piece, gain, row, most in zip(_pieces(tokenizer, said), here, tokens, gains.tolist(), strict=True)
    ]
