"""Weights in the form in which Hugging Face's models give them and other people's viewers take them."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from regard.config import choose
from regard.trace.look import Look


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
