"""Read a path of a search again in NumPy: a Transformer of the parts that the C++ library packs, without PyTorch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import erf, nan
from typing import Any

import numpy as np

from regard.engine.native_weights import TransformerWeights, as_floats
from regard.extras import missing
from regard.padding import BOS, EOS, Ids
from regard.search.decoder import allowed_log_probs
from regard.shapes import Bool, Float, Int
from regard.trace.attention_map import AttentionMap, StoredPart, check_numbers, check_shown, drop_missing, entropies
from regard.trace.decompose import Parts, Terms, by_content_and_position, by_frequency, relative_error
from regard.trace.trace import N_ALTERNATIVES, SUBLAYERS, Replay, ResidualNorms


def scaled_dot(q: Float[np.ndarray, "*H Q E"], k: Float[np.ndarray, "*H K E"]) -> Float[np.ndarray, "*H Q K"]:
    """Return `q kᵀ / √E`."""
    return q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))


@dataclass(frozen=True, eq=False, repr=False)
class NativeAttention(AttentionMap):
    """Queries, keys and values of one scaled dot-product attention in NumPy, and what it put out."""

    kind: str
    layer: int
    causal: bool  # no key after the query
    q: Float[np.ndarray, "H Q E"]
    k: Float[np.ndarray, "H K E"]
    v: Float[np.ndarray, "H K E"]
    out: Float[np.ndarray, "H Q E"] | None
    parts: Parts | None = None  # of queries and keys, in the first layers where positions are added
    frequencies: Float[np.ndarray, " pairs"] | None = None  # by which pairs of features turn from place to place

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.q.shape[0], self.q.shape[1], self.k.shape[1]

    @property
    def n_bytes(self) -> int:
        return sum(x.nbytes for x in self._numbers().values())

    def weights(self, head: int | None = None) -> Float[np.ndarray, "*H Q K"]:
        return softmax(np.where(self._rule(), self.scores(head), np.float32(-np.inf)))

    def scores(self, head: int | None = None, bias: bool = True) -> Float[np.ndarray, "*H Q K"]:
        at = self._place(head)
        return scaled_dot(self.q[at], self.k[at])

    def allowed(self, head: int) -> Bool[np.ndarray, "Q K"]:
        self._heads(head)
        return self._rule()

    def output(self, head: int | None = None) -> Float[np.ndarray, "*H Q E"]:
        return self.weights(head) @ self.v[self._place(head)]

    def entropy(self, head: int | None = None) -> Float[np.ndarray, "*H Q"]:
        return entropies(self.weights(head))

    def terms(self, head: int | None = None) -> Terms:
        at, total = self._place(head), self.scores(head)
        named = {"score": total}
        if self.parts is not None:
            named = by_content_and_position(scaled_dot, Parts(self.parts.q[:, at], self.parts.k[:, at]))
        elif self.frequencies is not None:
            named = by_frequency(scaled_dot, self.q[at], self.k[at], self.frequencies)
        terms = np.stack(list(named.values()))
        difference = terms.sum(0, dtype=np.float64) - total
        heads = [(difference, total)] if head is not None else zip(difference, total, strict=True)
        return Terms(tuple(named), terms, total, max(relative_error(*each) for each in heads))

    def error(self) -> float:
        return nan if self.out is None else relative_error(self.output() - self.out, self.out)

    def store(self) -> StoredPart:
        mask = {"n_keys": None, "causal": self.causal, "window": None, "offset": 0, "sighted": False}
        notes = {"form": "recorded", "kind": self.kind, "layer": self.layer, "mask": mask}
        return StoredPart({**notes, "attention": {"name": "scaled_dot"}}, self._numbers())

    @classmethod
    def restore(cls, notes: Mapping[str, Any], numbers: Mapping[str, np.ndarray]) -> "NativeAttention":
        """Restore what `store` returned; raise MissingExtraError for a look that only PyTorch can show."""
        made = dict(numbers)
        q, k = made.pop("parts.q", None), made.pop("parts.k", None)
        rule = {name: value for name, value in notes.get("mask", {}).items() if name not in {"causal", "sighted"}}
        plain = notes["form"] == "recorded" and notes["attention"] == {"name": "scaled_dot"}
        if not plain or rule != OPEN or made.keys() - {"q", "k", "v", "out", "frequencies"}:
            raise missing("a trace of this kind of attention", "torch")
        parts = None if q is None or k is None else Parts(q, k)
        return cls(notes["kind"], notes["layer"], notes["mask"]["causal"], parts=parts, **{"out": None, **made})

    def check(self) -> None:
        (H, Q, K), E, dtype = self.sizes, self.q.shape[-1], self.q.dtype
        check_numbers("q", self.q, (None, None, None))
        check_numbers("k", self.k, (H, None, E), dtype)
        check_numbers("v", self.v, (H, K, None), dtype)
        if type(self.causal) is not bool:
            raise ValueError(f"causal must be true or false, got {self.causal!r}")
        if self.out is not None:
            check_numbers("out", self.out, (H, Q, self.v.shape[-1]), dtype)
        if self.parts is not None:
            check_numbers("parts.q", self.parts.q, (3, H, Q, E), dtype)
            check_numbers("parts.k", self.parts.k, (3, H, K, E), dtype)
        if self.frequencies is not None:
            check_numbers("frequencies", self.frequencies, (E // 2,))
        check_shown(self)

    def _place(self, head: int | None) -> slice | int:
        self._heads(head)
        return slice(None) if head is None else head

    def _rule(self) -> Bool[np.ndarray, "Q K"]:
        allowed = np.ones(self.sizes[1:], bool)
        return np.tril(allowed) if self.causal else allowed

    def _numbers(self) -> dict[str, np.ndarray]:
        parts = {} if self.parts is None else {"parts.q": self.parts.q, "parts.k": self.parts.k}
        return {
            "q": self.q,
            "k": self.k,
            "v": self.v,
            **drop_missing(out=self.out, frequencies=self.frequencies),
            **parts,
        }


OPEN = {"n_keys": None, "window": None, "offset": 0}  # of a mask: what it says where it hides nothing but the future


def softmax(scores: Float[np.ndarray, "*B K"]) -> Float[np.ndarray, "*B K"]:
    """Return `exp(s_i) / Σ exp(s_j)`."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def relu(x: Float[np.ndarray, "T F"]) -> Float[np.ndarray, "T F"]:
    """Return `max(x, 0)`."""
    return np.maximum(x, 0)


def gelu(x: Float[np.ndarray, "T F"]) -> Float[np.ndarray, "T F"]:
    """Return `x Φ(x)`."""
    return x * np.reshape([0.5 + 0.5 * erf(a) for a in (x.ravel() * 0.5**0.5).tolist()], x.shape).astype(np.float32)


def silu(x: Float[np.ndarray, "T F"]) -> Float[np.ndarray, "T F"]:
    """Return `x σ(x)`, of either sign without an overflow."""
    return x * (0.5 + 0.5 * np.tanh(0.5 * x))


ACTIVATION: dict[str, Callable[[np.ndarray], np.ndarray]] = {"relu": relu, "gelu": gelu, "silu": silu}


def native_replay(weights: TransformerWeights, source: Ids, written: Ids) -> Replay:
    """Read a source, and a target as it was said, EOS included where the model said it: `replay` without PyTorch."""
    reading, said = Reading(weights), np.array(written, np.int64)
    memory = reading.read("encoder", np.array([*source, EOS], np.int64))
    x = reading.read("decoder", np.array([BOS, *written[:-1]], np.int64), memory)
    logits = x @ as_floats(weights.output_table).T
    logits = logits if weights.output_bias is None else logits + as_floats(weights.output_bias)
    log_probs, rows = allowed_log_probs(logits, None), np.arange(len(said))
    likely = np.argpartition(-log_probs, min(N_ALTERNATIVES, log_probs.shape[1]) - 1, axis=1)[:, :N_ALTERNATIVES]
    tokens = np.take_along_axis(likely, np.argsort(-log_probs[rows[:, None], likely], axis=1), 1)
    here = allowed_log_probs(logits, said)[rows, said]  # a prefix may hold what may not follow, such as UNK
    seen = tuple(reading.attention), tuple(reading.residual_norms)
    return Replay(*seen, here, log_probs[rows[:, None], tokens], tokens)


@dataclass(frozen=True, eq=False)
class EmbeddedTokens:
    """What enters a stack: vectors of tokens with their positions, and how positions turn queries and keys."""

    x: Float[np.ndarray, "T D"]
    turns: Float[np.ndarray, "T R"]  # cosine and sine for each pair of a head's features, if positions rotate
    frequencies: Float[np.ndarray, " pairs"] | None
    parts: Parts | None  # of the first layer's queries and keys, if positions are added


class Reading:
    """A pair on its way through a Transformer, and what was written down: the plain definition (arXiv:1706.03762)."""

    def __init__(self, weights: TransformerWeights):
        self.weights = weights
        self.attention: list[NativeAttention] = []
        self.residual_norms: list[ResidualNorms] = []

    def read(
        self, stack: str, ids: Int[np.ndarray, " T"], memory: Float[np.ndarray, "S D"] | None = None
    ) -> Float[np.ndarray, "T D"]:
        """Return what a stack makes of tokens; the decoder attends to what the encoder made of the source."""
        norm_first, tokens = self.weights.norm_first, self._embed(stack, ids)
        x = tokens.x
        for layer in range(self.weights.n_layers[stack == "decoder"]):
            for sublayer in SUBLAYERS[stack]:
                name = f"{stack}.layers.{layer}"
                h = self._norm(x, f"{name}.after_{sublayer}.norm") if norm_first else x
                if sublayer == "feed_forward":
                    update = self._feed_forward(h, f"{name}.feed_forward")
                elif sublayer == "cross_attention":
                    update = self._attend((h, memory), "cross", layer, f"{name}.cross_attention")
                else:
                    update = self._attend((h, h), stack, layer, f"{name}.attention", tokens)
                after = x + update if norm_first else self._norm(x + update, f"{name}.after_{sublayer}.norm")
                norms = (np.linalg.norm(vectors, axis=-1) for vectors in (x, update, after))
                self.residual_norms.append(ResidualNorms(stack, layer, sublayer, *norms))
                x = after
        return self._norm(x, f"{stack}.last_norm") if norm_first else x

    def _embed(self, stack: str, ids: Int[np.ndarray, " T"]) -> EmbeddedTokens:
        net = self.weights
        table, codes = (net.src_table, net.src_codes) if stack == "encoder" else (net.tgt_table, net.tgt_codes)
        D, rows = net.d_model, np.asarray(codes(0, len(ids)), np.float32).reshape(len(ids), -1)
        added, turns = np.split(rows, [D], axis=1)
        words = as_floats(table)[ids] * np.float32(D**0.5 if net.scale_embedding else 1.0)
        x = words + added
        norms = ["src.norm" if stack == "encoder" else "tgt.norm"] if net.embedding_norm else []
        parts = self._first_parts(x, added, f"{stack}.layers.0", norms) if net.adds_positions else None
        x = self._norm(x, norms[0]) if norms else x
        if not net.d_rotary:
            return EmbeddedTokens(x, turns, None, parts)
        one = np.asarray(codes(1, 2), np.float64).reshape(-1)
        cos, sin = one[D : D + net.d_rotary // 2 * 2].reshape(-1, 2).T
        return EmbeddedTokens(x, turns, np.arctan2(sin, cos), parts)

    def _attend(
        self,
        streams: tuple[Float[np.ndarray, "Q D"], Float[np.ndarray, "K D"] | None],
        kind: str,
        layer: int,
        name: str,
        tokens: EmbeddedTokens | None = None,
    ) -> Float[np.ndarray, "Q D"]:
        """Attend from one stream to another, or to itself, where positions may turn queries and keys."""
        h, seen = streams
        assert seen is not None, "the decoder attends to what the encoder read"
        q, k, v = (
            self._split_heads(self._linear(x, f"{name}.{w}")) for x, w in ((h, "w_q"), (seen, "w_k"), (seen, "w_v"))
        )
        attention = NativeAttention(kind, layer, kind == "decoder", q, k, v, None)
        if tokens is not None:
            turned = {"q": rotate(q, tokens.turns), "k": rotate(k, tokens.turns), "frequencies": tokens.frequencies}
            attention = replace(attention, **turned, parts=tokens.parts if layer == 0 else None)
        out = attention.output()
        self.attention.append(replace(attention, out=out))
        return self._linear(out.swapaxes(0, 1).reshape(h.shape), f"{name}.w_o")

    def _feed_forward(self, h: Float[np.ndarray, "T D"], name: str) -> Float[np.ndarray, "T D"]:
        return self._linear(ACTIVATION[self.weights.activation](self._linear(h, f"{name}.inner")), f"{name}.outer")

    def _linear(self, x: Float[np.ndarray, "T D"], name: str) -> Float[np.ndarray, "T D2"]:
        return x @ self._array(f"{name}.weight").T + self._array(f"{name}.bias")

    def _norm(self, x: Float[np.ndarray, "T D"], name: str) -> Float[np.ndarray, "T D"]:
        return self._norm_parts(x[None], name)[0]

    def _norm_parts(self, parts: Float[np.ndarray, "n T D"], name: str) -> Float[np.ndarray, "n T D"]:
        """Normalise a stream that is a sum; linear, given its mean and deviation. The bias goes to the last part."""
        if self.weights.norm == "layer":
            parts = parts - parts.mean(-1, keepdims=True)
        own = self.weights.arrays.get(f"{name}.eps")
        eps = self.weights.norm_eps if own is None else float(as_floats(own))
        scale = self._array(f"{name}.weight") / np.sqrt(np.square(parts.sum(0)).mean(-1, keepdims=True) + eps)
        normed = parts * scale
        normed[-1] += self._array(f"{name}.bias") if self.weights.norm == "layer" else 0
        return normed

    def _first_parts(
        self, x: Float[np.ndarray, "T D"], codes: Float[np.ndarray, "T D"], layer: str, norms: list[str]
    ) -> Parts:
        """Split queries and keys of a first layer into token, position and constants, exactly; see first_layer.py."""
        whole, position = x.astype(np.float64), codes.astype(np.float64)
        streams = np.stack([whole - position, position, np.zeros_like(whole)])
        for name in (*norms, *[f"{layer}.after_attention.norm"] * self.weights.norm_first):
            streams = self._norm_parts(streams, name)
        made = []
        for name in (f"{layer}.attention.w_q", f"{layer}.attention.w_k"):
            weight = self._array(f"{name}.weight").T.astype(np.float64)
            projected = np.stack([stream @ weight for stream in streams])  # one by one: NumPy's fast products are flat
            projected[2] += self._array(f"{name}.bias")
            made.append(self._split_heads(projected).astype(np.float32))
        return Parts(*made)

    def _split_heads(self, x: Float[np.ndarray, "*n T D"]) -> Float[np.ndarray, "*n H T E"]:
        return x.reshape(*x.shape[:-1], self.weights.n_heads, -1).swapaxes(-3, -2)

    def _array(self, name: str) -> np.ndarray:
        return as_floats(self.weights.arrays[name])


def rotate(x: Float[np.ndarray, "H T E"], turns: Float[np.ndarray, "T R"]) -> Float[np.ndarray, "H T E"]:
    """Turn each pair of features by its angle; nothing turns without angles, nor does an odd last feature."""
    even = min(turns.shape[1], x.shape[-1] // 2 * 2)
    (cos, sin), (a, b) = ((z[..., 0:even:2], z[..., 1:even:2]) for z in (turns, x))
    turned = np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(*x.shape[:-1], even)
    return np.concatenate([turned, x[..., even:]], axis=-1)
