"""Trace and its parts."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan, nan
from os import PathLike
from typing import Any

from regard.config import DecodeSettings, choose
from regard.extras import require
from regard.shapes import Float, Int
from regard.trace.attention_map import KINDS, AttentionMap
from regard.trace.search_tree import SearchTree


@dataclass(frozen=True, eq=False)
class ResidualNorms:
    """One sub-layer in the stream: for each token the norms of what came in, of what was added, and of what went on."""

    stack: str  # encoder or decoder
    layer: int
    sublayer: str  # attention, cross_attention or feed_forward
    before: Float[Any, " T"]
    update: Float[Any, " T"]
    after: Float[Any, " T"]


@dataclass(frozen=True, eq=False)
class Replay:
    """What was seen of one path: each attention, the stream's norms, and what might have been said instead."""

    attention: tuple[AttentionMap, ...]
    residual_norms: tuple[ResidualNorms, ...]
    log_probs: Float[Any, " T"]  # of what was said, by this reading
    top_log_probs: Float[Any, "T A"]  # of the likeliest, likeliest first
    tokens: Int[Any, "T A"]


N_ALTERNATIVES = 10
SUBLAYERS = {"encoder": ("attention", "feed_forward"), "decoder": ("attention", "cross_attention", "feed_forward")}


@dataclass(frozen=True, eq=False)
class Attentions:
    """For each layer the weights of all its heads, batch first, and the tokens along their sides.

    Rows of the decoder's and of the cross attention are named by `decoder_tokens`, columns of the decoder's by
    `decoder_inputs`. BertViz takes `**attentions.bertviz()`; Inspectus and CircuitsVis take one matrix and its tokens.
    """

    encoder_attentions: tuple[Float[Any, "1 _ S S"], ...]
    decoder_attentions: tuple[Float[Any, "1 _ T T"], ...]
    cross_attentions: tuple[Float[Any, "1 _ T S"], ...]
    encoder_tokens: list[str]
    decoder_tokens: list[str]  # what the decoder wrote
    decoder_inputs: list[str]  # what it read, BOS first

    def bertviz(self, *kinds: str) -> dict[str, object]:
        """Return the arguments of BertViz's `head_view` and `model_view`, for all kinds that exist or for those named.

        BertViz draws the same number of layers of each kind: the lower ones where stacks differ in depth; one kind
        alone is drawn whole. It names rows and columns of the decoder's attention alike, so BOS gets a row of zeros
        and the last token, which was never read, a column of zeros.
        """
        stacks = {
            "encoder": self.encoder_attentions,
            "decoder": tuple(_with_first_row(layer, 1) for layer in self.decoder_attentions),
            "cross": tuple(_with_first_row(layer, 0) for layer in self.cross_attentions),
        }
        for kind in kinds:
            choose(stacks, kind, "kind of attention")
        drawn = {kind: list(layers) for kind, layers in stacks.items() if layers and (not kinds or kind in kinds)}
        written = [*self.decoder_inputs[:1], *self.decoder_tokens]
        names = {"encoder": self.encoder_tokens, "decoder": written}
        tokens = {f"{side}_tokens": words for side, words in names.items() if side in drawn or "cross" in drawn}
        shared = list(range(min(map(len, drawn.values()), default=0)))
        return {**{f"{kind}_attention": layers for kind, layers in drawn.items()}, **tokens, "include_layers": shared}


def _with_first_row(layer: Float[Any, "1 H Q K"], n_columns: int) -> Float[Any, "1 H _ _"]:
    """Put a row of zeros before a tensor's rows, and so many columns of zeros behind its columns."""
    *outer, Q, K = layer.shape
    framed = layer.new_zeros((*outer, Q + 1, K + n_columns))
    framed[..., 1:, :K] = layer
    return framed


@dataclass(frozen=True)
class TokenAlternative:
    """One token that might have followed."""

    piece: str
    log_prob: float


@dataclass(frozen=True)
class OutputToken:
    """One token that was said, and what might have been said in its place, likeliest first."""

    piece: str
    log_prob: float  # as the search had it
    replayed: float  # as the plain model has it
    alternatives: tuple[TokenAlternative, ...]


@dataclass(frozen=True)
class TraceChecks:
    """How well what is shown agrees with what was computed; not a number where there is nothing to compare with."""

    weights: float  # largest difference of `weights @ v` from an attention's output, as a share of its largest number
    look: str  # where that is
    log_prob: float  # largest difference of a token's log-probability in the search and in the replay


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """One path through a model: what was read and said, every attention on the way, and the search around it.

    Row t of the decoder's and of the cross attention was computed from `read[t]` when `target[t]` was written; see
    `sides`.
    """

    text: str
    output: str
    src_lang: str
    tgt_lang: str
    settings: DecodeSettings
    source: tuple[str, ...]  # the pieces that the encoder read, EOS last
    read: tuple[str, ...]  # the pieces that the decoder read, BOS first
    steps: tuple[OutputToken, ...]
    attention: tuple[AttentionMap, ...]
    residual_norms: tuple[ResidualNorms, ...]
    tree: SearchTree
    end_node: int  # the node of the tree where this path ends
    replay: "Callable[[int], Trace] | None" = None  # looks at the path to another node; a file does not hold the model

    @property
    def target(self) -> tuple[str, ...]:
        """The pieces that were said, EOS last where the model ended."""
        return tuple(step.piece for step in self.steps)

    @property
    def encoder(self) -> tuple[AttentionMap, ...]:
        """The encoder's attention to itself, layer by layer."""
        return self._of_kind("encoder")

    @property
    def decoder(self) -> tuple[AttentionMap, ...]:
        """The decoder's attention to what it wrote."""
        return self._of_kind("decoder")

    @property
    def cross(self) -> tuple[AttentionMap, ...]:
        """The decoder's attention to the encoder."""
        return self._of_kind("cross")

    def attention_map(self, kind: str, layer: int) -> AttentionMap:
        """Return one layer's attention, or say which there are."""
        choose(dict.fromkeys(KINDS), kind, "kind of attention")
        found = self._of_kind(kind)
        if not 0 <= layer < len(found):
            have = f"0 … {len(found) - 1}" if found else "none, as this model has no such attention"
            raise ValueError(f"{kind} layer must be {have}, got {layer}")
        return found[layer]

    def at(self, node: int) -> "Trace":
        """Look at another path of the same search: the one to this node of the tree."""
        if node == self.end_node:
            return self
        if self.replay is None:
            raise ValueError(
                f"a trace that was read from a file holds one path, to node {self.end_node}, got {node}: "
                "trace the text again with its model"
            )
        return self.replay(node)

    def check(self) -> TraceChecks:
        """Compare what is shown with what was computed; materialises one head after another."""
        errors = {
            f"{attention_map.kind} layer {attention_map.layer}": attention_map.error()
            for attention_map in self.attention
        }
        known = {name: error for name, error in errors.items() if not isnan(error)}
        worst = max(known, key=lambda name: known[name], default="")
        differences = [abs(step.log_prob - step.replayed) for step in self.steps]
        return TraceChecks(
            known.get(worst, nan), worst, nan if any(map(isnan, differences)) else max(differences, default=nan)
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write this path with all that was recorded to one safetensors file; `regard.load_trace` reads it."""
        from regard.trace.file import save_trace  # which knows what a trace is

        save_trace(self, path)

    def to_hf(self) -> Attentions:
        """Return all weights as Hugging Face's models do, for BertViz, Inspectus and CircuitsVis."""
        require("torch", "to_hf()")  # whose tensors these tools take

        def layers(kind: str) -> tuple[Float[Any, "1 H Q K"], ...]:
            return tuple(attention_map.weights()[None].float() for attention_map in self._of_kind(kind))

        tokens = list(self.source), list(self.target), list(self.read)
        return Attentions(layers("encoder"), layers("decoder"), layers("cross"), *tokens)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self._of_kind(kind))} {kind}" for kind in KINDS if self._of_kind(kind))
        return f"Trace({self.text!r} → {self.output!r}: {counts} layers, {len(self.tree)} nodes)"

    def _of_kind(self, kind: str) -> tuple[AttentionMap, ...]:
        return tuple(attention_map for attention_map in self.attention if attention_map.kind == kind)


def sides(trace: Trace, kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of rows and columns of one kind of attention.

    A row of the decoder's or of the cross attention is named by the token that was written from it, a column by the
    token that was read.
    """
    written = trace.target
    return {
        "encoder": (trace.source, trace.source),
        "decoder": (written, trace.read),
        "cross": (written, trace.source),
    }[kind]


def check_sides(trace: Trace) -> None:
    """Raise ValueError unless each row and column of each attention has a token."""
    for attention_map in trace.attention:
        (_, queries, keys), (rows, columns) = attention_map.sizes, sides(trace, attention_map.kind)
        if (len(rows), len(columns)) != (queries, keys):
            raise ValueError(
                f"there must be one token for each query and key of {attention_map}, "
                f"got {len(rows)} and {len(columns)} tokens"
            )
