"""Models of Hugging Face: what they read and write, and the queries, keys and values of every attention."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import nan
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor, nn

from regard.attention import ScaledDot
from regard.mask import Mask
from regard.shapes import Float
from regard.trace.attention import GivenAttention, RecordedAttention
from regard.trace.attention_map import AttentionMap
from regard.trace.external import trace_from_attention
from regard.trace.head_ablation import ProgressBar, Quality, no_progress
from regard.trace.head_report import (
    AttentionContext,
    HeadReport,
    HeadSummary,
    Layer,
    is_punctuation,
    mean_stats,
    stat_sums,
)
from regard.trace.replay import to_cpu
from regard.trace.residual import Tokens
from regard.trace.trace import N_ALTERNATIVES, OutputToken, TokenAlternative, Trace


@dataclass(frozen=True, eq=False)
class RecordedCall:
    """One call of a model's attention for a batch of one: what it was given, and what it returned."""

    q: Tensor  # (H, Q, E), scaled so that our scaled dot product gives the model's scores
    k: Tensor  # (H, K, E)
    v: Tensor  # (H, K, E)
    bias: Tensor | None  # (#H, #Q, K), −∞ where attention is not allowed
    weights: Tensor  # (1, H, Q, K): the very tensor that the model got
    out: Tensor  # (H, Q, E)


@dataclass(eq=False)
class AttentionRecorder:
    """Computes a model's attention as its own eager function does, and keeps what went in and out."""

    calls: list[RecordedCall] = field(default_factory=list)
    attended: list[tuple[nn.Module, Tensor]] = field(default_factory=list)  # every module that was called, its weights
    removed: tuple[nn.Module, int] | None = None  # a module and its head, whose output is zeros

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **more: Any,
    ) -> tuple[Tensor, Tensor]:
        """Attend; scores that are squeezed (`softcap`) or share a sink (`s_aux`) are no dot products, and not kept."""
        softcap, s_aux = more.get("softcap"), more.get("s_aux")
        E, groups = query.shape[-1], query.shape[1] // key.shape[1]
        scale = float(E**-0.5 if scaling is None else scaling)
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))  # queries that share keys and values
        scores = query @ key.transpose(2, 3) * scale
        scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
        masked = None if attention_mask is None else _additive(attention_mask[..., : key.shape[2]], query.dtype)
        added = [x for x in (more.get("position_bias"), masked) if x is not None]
        bias = sum(added[1:], added[0]) if added else None
        scores = scores if bias is None else scores + bias
        if s_aux is not None:
            scores = torch.cat([scores, s_aux.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)], dim=-1)
        weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)[..., : key.shape[2]]
        out = weights @ value
        self.attended.append((module, weights))
        if self.removed is not None and self.removed[0] is module:
            out[:, self.removed[1]] = 0.0
        if len(query) == 1 and softcap is None and s_aux is None:
            q, biases = query[0] * (scale * E**0.5), None if bias is None else bias[0]
            self.calls.append(RecordedCall(q, key[0], value[0], biases, weights, out[0]))
        return out.transpose(1, 2).contiguous(), weights

    def maps(self, kind: str, layers: Sequence[Tensor]) -> tuple[AttentionMap, ...]:
        """Return the attention of each layer whose weights the model returned, with all that was recorded of it."""
        by_weights = {id(call.weights): call for call in self.calls}
        return tuple(_map(kind, number, weights, by_weights.get(id(weights))) for number, weights in enumerate(layers))


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)
    return mask


def _map(kind: str, layer: int, weights: Tensor, call: RecordedCall | None) -> AttentionMap:
    if call is None:
        return GivenAttention(kind, layer, to_cpu(weights[0]))
    bias, mask = None if call.bias is None else to_cpu(call.bias), Mask()
    if bias is not None:
        hidden = bias <= torch.finfo(call.bias.dtype).min / 2  # pyright: ignore[reportOptionalMemberAccess]
        mask = Mask(allowed=~hidden[None]) if hidden.any() else mask
        bias = bias.masked_fill(hidden, 0.0)
        bias = bias if bias.any() else None
    q, k, v, out = (to_cpu(x) for x in (call.q, call.k, call.v, call.out))
    return RecordedAttention(kind, layer, ScaledDot().eval(), q, k, v, mask, bias, out)


@contextmanager
def recorded_attention(model: Any) -> Iterator[AttentionRecorder]:
    """Let a model, in evaluation mode, compute its attention through a recorder; then leave it as it was."""
    from transformers import AttentionInterface, AttentionMaskInterface, masking_utils  # the model is one of theirs

    recorder, name = AttentionRecorder(), f"regard-{uuid4().hex[:8]}"
    config, training = model.config, model.training
    before = {"": config._attn_implementation}
    for part in config.sub_configs:
        if getattr(config, part, None) is not None:
            before[part] = getattr(config, part)._attn_implementation
    AttentionInterface.register(name, recorder)
    AttentionMaskInterface.register(name, masking_utils.eager_mask)
    model.set_attn_implementation(name)
    model.eval()
    try:
        yield recorder
    finally:
        model.set_attn_implementation(before)
        model.train(training)
        AttentionInterface._global_mapping.pop(name, None)
        AttentionMaskInterface._global_mapping.pop(name, None)


def trace_hf(model: Any, tokenizer: Any, text: str, output: str | None = None, max_new_tokens: int = 64) -> Trace:
    """Trace an encoder–decoder, a decoder or an encoder on one text.

    What is written is `output`, or what `model.generate` says in at most `max_new_tokens`; then all is read once. The
    model's attention is computed by a function of ours meanwhile, which records queries, keys and values, so that heads
    have scores and outputs too; where a model does not call it, the weights are those that the model itself returns.
    """
    read = tokenizer(text, return_tensors="pt").to(model.device)
    with torch.no_grad(), recorded_attention(model) as recorder:
        if model.config.is_encoder_decoder:
            return _trace_both(
                model, tokenizer, text, read, _output_ids(model, tokenizer, read, output, max_new_tokens), recorder
            )
        if model.can_generate():
            return _trace_decoder(
                model, tokenizer, text, _continuation_ids(model, tokenizer, read, output, max_new_tokens), recorder
            )
        return _trace_encoder(model, tokenizer, text, read, recorder)


def _trace_both(model: Any, tokenizer: Any, text: str, read: Any, ids: Tensor, recorder: "AttentionRecorder") -> Trace:
    seen = model(**read, decoder_input_ids=ids[:, :-1], output_attentions=True)
    attention_maps = (
        *recorder.maps("encoder", seen.encoder_attentions),
        *recorder.maps("decoder", seen.decoder_attentions),
        *recorder.maps("cross", seen.cross_attentions),
    )
    steps = _steps(tokenizer, seen.logits[0], ids[0, 1:])
    sides = _token_texts(tokenizer, read["input_ids"][0]), _token_texts(tokenizer, ids[0, :-1])
    return trace_from_attention(attention_maps, *sides, steps, text, tokenizer.decode(ids[0], skip_special_tokens=True))


def _trace_decoder(model: Any, tokenizer: Any, text: str, ids: Tensor, recorder: "AttentionRecorder") -> Trace:
    """Show all tokens; what follows the last is the likeliest."""
    seen = model(input_ids=ids, output_attentions=True)
    steps = _steps(tokenizer, seen.logits[0], torch.cat([ids[0, 1:], seen.logits[0, -1:].argmax(-1)]))
    written = tokenizer.decode(ids[0], skip_special_tokens=True)
    return trace_from_attention(
        recorder.maps("decoder", seen.attentions), (), _token_texts(tokenizer, ids[0]), steps, text, written
    )


def _trace_encoder(model: Any, tokenizer: Any, text: str, read: Any, recorder: "AttentionRecorder") -> Trace:
    seen = model(**read, output_attentions=True)
    return trace_from_attention(
        recorder.maps("encoder", seen.attentions), _token_texts(tokenizer, read["input_ids"][0]), (), (), text
    )


def _output_ids(model: Any, tokenizer: Any, read: Any, output: str | None, n: int) -> Tensor:
    """Return the target's ids, the one that decoders begin with included."""
    if output is None:
        return model.generate(**read, max_new_tokens=n)[:1]
    ids = tokenizer(text_target=output, return_tensors="pt").input_ids.to(model.device)
    chosen = getattr(model, "generation_config", None)  # which a model without a head does not have
    start = getattr(chosen, "decoder_start_token_id", None)
    start = model.config.decoder_start_token_id if start is None else start
    return torch.cat([ids.new_full((1, 1), start), ids], dim=1)


def _continuation_ids(model: Any, tokenizer: Any, read: Any, output: str | None, n: int) -> Tensor:
    """Return the ids of the text with what follows it."""
    if output is None:
        return model.generate(**read, max_new_tokens=n)[:1]
    if not output:
        return read["input_ids"]
    follows = tokenizer(output, return_tensors="pt", add_special_tokens=False).input_ids.to(model.device)
    return torch.cat([read["input_ids"], follows], dim=1)


def _token_texts(tokenizer: Any, ids: Tensor) -> list[str]:
    return [str(piece) for piece in tokenizer.convert_ids_to_tokens(ids.tolist())]


def _steps(tokenizer: Any, logits: Tensor, written: Tensor) -> list[OutputToken]:
    """List what was said with its log-probability in this reading; what a search had is not known."""
    every = logits.float().log_softmax(-1).cpu()
    gains, tokens = every.topk(min(N_ALTERNATIVES, every.shape[-1]))
    here = every.gather(1, written.cpu()[:, None])[:, 0].tolist()
    return [
        OutputToken(
            piece,
            gain,
            nan,
            tuple(TokenAlternative(*each) for each in zip(_token_texts(tokenizer, row), most, strict=True)),
        )
        for piece, gain, row, most in zip(_token_texts(tokenizer, written), here, tokens, gains.tolist(), strict=True)
    ]


@dataclass(frozen=True, eq=False)
class HiddenStates:
    """One stack's hidden states over texts, a row for each token: at the embedding, and after each layer.

    `words` are the embeddings of the tokens alone, without position; `special` the ids that are no words of a text.
    """

    stack: str
    tokens: Tokens
    special: tuple[int, ...]
    layers: list[Float[Tensor, "N D"]]
    words: Float[Tensor, "N D2"]

    def points(self) -> dict[str, Float[Tensor, "N D"]]:
        """Return the states by their names; most models apply their last norm to the last."""
        names = ["embedding", *(f"layer {n}" for n in range(len(self.layers) - 1))]
        return dict(zip(names, self.layers, strict=True))


@torch.no_grad()
def record_hf_states(
    model: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]], bar: ProgressBar = no_progress
) -> list[HiddenStates]:
    """Read texts one by one, and return the hidden states of each stack; what the model cannot read is left out.

    An encoder–decoder reads pairs under teacher forcing, any other model the first text of each.
    """
    training, limit = model.training, min(tokenizer.model_max_length, _most_positions(model))
    heard: dict[str, list[tuple[int, Tensor, tuple[Tensor, ...]]]] = {}
    model.eval()
    try:
        for number, (src, tgt) in enumerate(bar(pairs, len(pairs), "reading")):
            read = tokenizer(src, return_tensors="pt").to(model.device)
            for stack, ids, states in _hidden_states(model, tokenizer, read, tgt, limit):
                heard.setdefault(stack, []).append((number, ids[0].cpu(), tuple(to_cpu(x[0]) for x in states)))
    finally:
        model.train(training)
    return [_join_states(model, tokenizer, stack, each) for stack, each in heard.items()]


def _most_positions(model: Any) -> int:
    most = getattr(model.config, "max_position_embeddings", None)
    return most if isinstance(most, int) and most > 0 else 1 << 30


def _hidden_states(
    model: Any, tokenizer: Any, read: Any, tgt: str, limit: int
) -> list[tuple[str, Tensor, tuple[Tensor, ...]]]:
    """Return ids and hidden states of each stack; nothing for a text that is empty or too long."""
    ids = {"layers": read["input_ids"]}
    if model.config.is_encoder_decoder:
        ids = {"encoder": read["input_ids"], "decoder": _output_ids(model, tokenizer, read, tgt, 0)[:, :-1]}
    if not all(0 < each.shape[1] <= limit for each in ids.values()):
        return []
    more = {"decoder_input_ids": ids["decoder"]} if model.config.is_encoder_decoder else {}
    seen = model(**read, **more, output_hidden_states=True)
    names = {"layers": "hidden_states", "encoder": "encoder_hidden_states", "decoder": "decoder_hidden_states"}
    return [(stack, each, getattr(seen, names[stack])) for stack, each in ids.items()]


def _join_states(
    model: Any, tokenizer: Any, stack: str, heard: list[tuple[int, Tensor, tuple[Tensor, ...]]]
) -> HiddenStates:
    ids = torch.cat([each for _, each, _ in heard])
    positions = torch.cat([torch.arange(len(each)) for _, each, _ in heard])
    sentences = torch.cat([torch.full((len(each),), number) for number, each, _ in heard])
    layers = [torch.cat(layer) for layer in zip(*(states for _, _, states in heard), strict=True)]
    special = tuple(sorted(set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}))  # an unknown word is a word
    words = to_cpu(model.get_input_embeddings()(ids.to(model.device)))
    return HiddenStates(stack, Tokens(ids, positions, sentences), special, layers, words)


@torch.no_grad()
def report_hf_heads(
    model: Any, tokenizer: Any, texts: Sequence[str | tuple[str, str]], bar: ProgressBar = no_progress
) -> HeadReport:
    """Report on every head of a Hugging Face model as `report_heads` does: where it attends, what is lost without it.

    An encoder–decoder takes pairs of source and target, a decoder texts. One pass for all, then one for each head.
    """
    inputs = [_inputs(model, tokenizer, text) for text in texts]
    if not inputs:
        raise ValueError("a report on heads needs a text or more, got 0")
    sums: dict[Layer, Tensor] = {}
    modules: dict[Layer, nn.Module] = {}
    with recorded_attention(model) as recorder:
        costs = []
        for each in bar(inputs, len(inputs), "looking at heads"):
            costs.append(_cost(model, each, recorder, sums, modules, tokenizer))
        n_tokens = sum(n for _, n in costs)
        whole = sum(cost for cost, _ in costs) / n_tokens
        places = [(place, head) for place, total in sums.items() for head in range(total.shape[1])]
        heads = []
        for place, head in bar(places, len(places), "switching heads off"):
            recorder.removed = modules[place], head
            loss = sum(_cost(model, each, recorder)[0] for each in inputs) / n_tokens
            (kind, layer), stats = place, mean_stats(place[0], sums[place][:, head].tolist())
            heads.append(HeadSummary(kind, layer, head, stats, loss - whole, None))
    return HeadReport(heads, Quality(whole, None), len(inputs), n_tokens, 0)


def _inputs(model: Any, tokenizer: Any, text: str | tuple[str, str]) -> dict[str, Tensor]:
    """Return what the model is called with, and under `labels` what it should say."""
    if model.config.is_encoder_decoder:
        if isinstance(text, str):
            raise ValueError(f"an encoder–decoder needs pairs of source and target, got the text {text[:40]!r}")
        read = tokenizer(text[0], return_tensors="pt").to(model.device)
        ids = _output_ids(model, tokenizer, read, text[1], 0)
        return {**read, "decoder_input_ids": ids[:, :-1], "labels": ids[:, 1:]}
    if not isinstance(text, str):
        raise ValueError(f"a decoder reads texts, got a pair that begins with {text[0][:40]!r}")
    ids = tokenizer(text, return_tensors="pt").input_ids.to(model.device)
    return {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}


def _cost(
    model: Any,
    inputs: dict[str, Tensor],
    recorder: AttentionRecorder,
    sums: dict[Layer, Tensor] | None = None,
    modules: dict[Layer, nn.Module] | None = None,
    tokenizer: Any = None,
) -> tuple[float, int]:
    """Return the sum of −log p of the labels, and their number; add what each head did where sums are given."""
    recorder.calls.clear()
    recorder.attended.clear()
    labels = inputs["labels"]
    rest = {name: tensor for name, tensor in inputs.items() if name != "labels"}
    seen = model(**rest, output_attentions=sums is not None)
    if not hasattr(seen, "logits"):
        raise ValueError(f"a report on heads needs a model that predicts tokens, got {type(model).__name__}")
    if sums is not None and modules is not None:
        _add_stats(seen, rest, recorder, sums, modules, tokenizer)
    log_probs = seen.logits.float().log_softmax(-1)
    return -float(log_probs.gather(2, labels[..., None]).sum()), labels.numel()


def _add_stats(
    seen: Any,
    read: dict[str, Tensor],
    recorder: AttentionRecorder,
    sums: dict[Layer, Tensor],
    modules: dict[Layer, nn.Module],
    tokenizer: Any,
) -> None:
    names = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
    by_weights = {id(weights): module for module, weights in recorder.attended}
    sides = {"decoder": read.get("decoder_input_ids", read["input_ids"]), "encoder": read["input_ids"]}
    for kind, name in names.items():
        alone = getattr(seen, "attentions", None) if kind == "decoder" else None
        layers: Sequence[Tensor] = getattr(seen, name, None) or alone or ()
        keys = _key_context(sides["encoder" if kind == "cross" else kind], tokenizer)
        for number, weights in enumerate(layers):
            modules[kind, number] = by_weights[id(weights)]
            Q, K = weights.shape[2:]
            n_keys = torch.arange(1, Q + 1)[None] if kind == "decoder" else torch.full((1, Q), K)
            context = AttentionContext(torch.ones(1, Q, dtype=torch.bool), n_keys, *keys)
            here = stat_sums(weights.float().cpu(), context)
            sums[kind, number] = sums[kind, number] + here if (kind, number) in sums else here


def _key_context(ids: Tensor, tokenizer: Any) -> tuple[Tensor, Tensor]:
    marks = [is_punctuation(piece.replace("Ġ", "")) for piece in _token_texts(tokenizer, ids[0])]
    return ids.cpu() == (tokenizer.eos_token_id if tokenizer.eos_token_id is not None else -1), torch.tensor([marks])
