"""Trace and its parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan, nan
from os import PathLike
from typing import Any

from jaxtyping import Float
from torch import Tensor

import regard
from regard.config import DecodeSettings, choose
from regard.trace.attention import KINDS, Look
from regard.trace.search_tree import Tree


@dataclass(frozen=True, eq=False)
class Flow:
    """One sub-layer in the stream: for each token the norms of what came in, of what was added, and of what went on."""

    stack: str  # encoder or decoder
    layer: int
    sublayer: str  # attention, cross_attention or feed_forward
    before: Float[Tensor, " T"]
    update: Float[Tensor, " T"]
    after: Float[Tensor, " T"]


@dataclass(frozen=True, eq=False)
class Attentions:
    """For each layer the weights of all its heads, batch first, and the tokens along their sides.

    BertViz takes `**attentions.bertviz()`; Inspectus and CircuitsVis take one matrix of weights and its tokens.
    """

    encoder_attentions: tuple[Float[Tensor, "1 _ S S"], ...]
    decoder_attentions: tuple[Float[Tensor, "1 _ T T"], ...]
    cross_attentions: tuple[Float[Tensor, "1 _ T S"], ...]
    encoder_tokens: list[str]
    decoder_tokens: list[str]  # what the decoder read

    def bertviz(self, *kinds: str) -> dict[str, object]:
        """Gives the arguments of BertViz's `head_view` and `model_view`, of all kinds that there are or of those named.

        BertViz draws as many layers of each kind: of stacks of different depth the lower ones, a kind by itself whole.
        """
        stacks = {
            "encoder": self.encoder_attentions,
            "decoder": self.decoder_attentions,
            "cross": self.cross_attentions,
        }
        for kind in kinds:
            choose(stacks, kind, "kind of attention")
        drawn = {kind: list(layers) for kind, layers in stacks.items() if layers and (not kinds or kind in kinds)}
        sides = {"encoder": self.encoder_tokens, "decoder": self.decoder_tokens}
        tokens = {f"{side}_tokens": words for side, words in sides.items() if side in drawn or "cross" in drawn}
        shared = list(range(min(map(len, drawn.values()), default=0)))
        return {**{f"{kind}_attention": layers for kind, layers in drawn.items()}, **tokens, "include_layers": shared}


def make_attentions(looks: Sequence[Look], source: Sequence[str], read: Sequence[str]) -> Attentions:
    """Materialises every head of every layer."""

    def layers(kind: str) -> tuple[Tensor, ...]:
        return tuple(look.weights()[None].float() for look in looks if look.kind == kind)

    return Attentions(layers("encoder"), layers("decoder"), layers("cross"), list(source), list(read))


Bundle = tuple[dict[str, Any], dict[str, Any]]  # what Jupyter shows: the thing in several forms, and notes on them


@dataclass(frozen=True)
class Option:
    """One token that might have followed."""

    piece: str
    log_prob: float


@dataclass(frozen=True)
class Step:
    """One token that was said, and what might have been said in its place, likeliest first."""

    piece: str
    log_prob: float  # as the search had it
    replayed: float  # as the plain model has it
    alternatives: tuple[Option, ...]


@dataclass(frozen=True)
class Checks:
    """How well what is shown agrees with what was computed; not a number where there is nothing to compare with."""

    weights: float  # largest difference of `weights @ v` from an attention's output, as a share of its largest number
    look: str  # where that is
    log_prob: float  # largest difference of a token's log-probability in the search and in the replay


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """One path through a model: what was read and said, every attention on the way, and the search around it.

    Row t of the decoder's and of the cross attention is the token `read[t]`, and says `target[t]`.
    """

    text: str
    output: str
    src_lang: str
    tgt_lang: str
    settings: DecodeSettings
    source: tuple[str, ...]  # the pieces that the encoder read, EOS last
    read: tuple[str, ...]  # the pieces that the decoder read, BOS first
    steps: tuple[Step, ...]
    looks: tuple[Look, ...]
    flows: tuple[Flow, ...]
    tree: Tree
    leaf: int  # the node of the tree where this path ends
    again: "Callable[[int], Trace] | None" = None  # looks at the path to another node; a file does not hold the model

    @property
    def target(self) -> tuple[str, ...]:
        """The pieces that were said, EOS last where the model ended."""
        return tuple(step.piece for step in self.steps)

    @property
    def encoder(self) -> tuple[Look, ...]:
        """The encoder's attention to itself, layer by layer."""
        return self._of_kind("encoder")

    @property
    def decoder(self) -> tuple[Look, ...]:
        """The decoder's attention to what it wrote."""
        return self._of_kind("decoder")

    @property
    def cross(self) -> tuple[Look, ...]:
        """The decoder's attention to the encoder."""
        return self._of_kind("cross")

    def look(self, kind: str, layer: int) -> Look:
        """Gives one layer's attention, or says which there are."""
        choose(dict.fromkeys(KINDS), kind, "kind of attention")
        found = self._of_kind(kind)
        if not 0 <= layer < len(found):
            have = f"0 … {len(found) - 1}" if found else "none, as this model has no such attention"
            raise ValueError(f"{kind} layer must be {have}, got {layer}")
        return found[layer]

    def of(self, node: int) -> "Trace":
        """Looks at another path of the same search: the one to this node of the tree."""
        if node == self.leaf:
            return self
        if self.again is None:
            raise ValueError(
                f"a trace that was read from a file holds one path, to node {self.leaf}, got {node}: "
                "trace the text again with its model"
            )
        return self.again(node)

    def check(self) -> Checks:
        """Compares what is shown with what was computed; materialises one head after another."""
        errors = {f"{look.kind} layer {look.layer}": look.error() for look in self.looks}
        known = {name: error for name, error in errors.items() if not isnan(error)}
        worst = max(known, key=lambda name: known[name], default="")
        apart = [abs(step.log_prob - step.replayed) for step in self.steps]
        return Checks(known.get(worst, nan), worst, nan if any(map(isnan, apart)) else max(apart, default=nan))

    def save(self, path: str | PathLike[str]) -> None:
        """Writes this path with all that was recorded to one safetensors file; `regard.load_trace` reads it."""
        from regard.trace.file import save_trace  # which knows what a trace is

        save_trace(self, path)

    def to_hf(self) -> Attentions:
        """Gives all weights as Hugging Face's models do, for BertViz, Inspectus and CircuitsVis."""
        return make_attentions(self.looks, self.source, self.read)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Bundle:
        """Shows itself in a notebook, as the page does."""
        return regard.show_trace(self)._repr_mimebundle_()

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self._of_kind(kind))} {kind}" for kind in KINDS if self._of_kind(kind))
        return f"Trace({self.text!r} → {self.output!r}: {counts} layers, {len(self.tree)} nodes)"

    def _of_kind(self, kind: str) -> tuple[Look, ...]:
        return tuple(look for look in self.looks if look.kind == kind)
