"""Build models and layers from settings; refuse pairs of parts that have no meaning together."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from torch import nn

from regard.attention import ATTENTION, ScaledDot
from regard.config import HeadsSettings, ModelSettings, PartSettings, check_value, choose, unknown
from regard.model import DecoderOnly, MultiHeadAttention, Recurrent, Seq2Seq, Transformer
from regard.model.layers import ACTIVATION, Embedding, FactoredTable, FeedForward, Output, make_table
from regard.model.multihead import check_sizes
from regard.model.norm import NORM, Norm, Residual
from regard.model.recurrent import GRUDecoder, GRUEncoder
from regard.model.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer
from regard.padding import PAD
from regard.position import POSITION, NoPosition, Position

M = TypeVar("M", bound=nn.Module)

_NO_DOT = "its term q·a belongs to a dot product of q with k + a, and {} takes none"
REFUSED = {
    (
        "additive",
        "rotary",
    ): "turning q and k leaves tanh(W_q q + W_k k) a function of both positions, not of their distance",
    (
        "bilinear",
        "rotary",
    ): "W does not commute with the rotations: the score depends on both positions, not on their distance",
    ("additive", "shaw"): _NO_DOT.format("additive attention"),
    ("additive", "difference"): _NO_DOT.format("additive attention"),
    ("bilinear", "shaw"): _NO_DOT.format("bilinear attention"),
    ("bilinear", "difference"): _NO_DOT.format("bilinear attention"),
    ("gaussian", "shaw"): _NO_DOT.format("a Gaussian kernel"),
    ("gaussian", "difference"): _NO_DOT.format("a Gaussian kernel"),
}
# Schemes that a text model cannot use, whatever its attention.
REFUSED_IN_TEXT = {
    "normalised": "a decoder writes word by word and cannot know the sentence's length, which it divides by",
    "grid_2d": "text has one coordinate for each token, a grid has two",
    "grid_3d": "text has one coordinate for each token, a grid has three",
    "turns": "text has one coordinate for each token, a dialogue has three",
}
# Schemes that act between heads of queries and keys, which a recurrent model does not have.
NEEDS_HEADS = {"difference", "shaw", "t5", "alibi", "rotary"}
# Schemes that act on token vectors, before the first layer.
ON_TOKENS = {"index", "normalised", "sinusoidal", "learned", "half_wave", "grid_2d", "grid_3d", "turns"}
# What a recurrent model can do without; the decoder then knows one vector of the source.
NO_ATTENTION = "none"
NORM_FIRST = {"before": True, "after": False}
# Which share the target's table: (the source, the output).
SHARED_TABLES = {"all": (True, True), "target": (False, True), "inputs": (True, False), "none": (False, False)}


def build_model(settings: ModelSettings, vocab_sizes: tuple[int, int]) -> Seq2Seq:
    """Build a sequence-to-sequence model for source and target vocabularies of these sizes."""
    families = {"transformer": build_transformer, "recurrent": build_recurrent, "decoder": build_decoder_only}
    make = choose(families, settings.family, "family")
    check_sizes(settings.d_model, settings.n_heads, settings.d_model)
    reads = settings.family != "decoder"
    if min(settings.n_encoder_layers if reads else 1, settings.n_decoder_layers, settings.d_ff) < 1:
        sizes = (settings.n_encoder_layers, settings.n_decoder_layers, settings.d_ff)
        raise ValueError(f"n_encoder_layers, n_decoder_layers and d_ff must be 1 or more, got {sizes}")
    choose(POSITION, settings.position.name, "position")
    if settings.position.name in REFUSED_IN_TEXT:
        reason = REFUSED_IN_TEXT[settings.position.name]
        raise ValueError(f"position {settings.position.name!r} has no meaning in a text model: {reason}")
    if settings.attention.name == NO_ATTENTION and settings.family != "recurrent":
        raise ValueError(
            f"attention {NO_ATTENTION!r} has no meaning in a {settings.family} model, where tokens meet in attention "
            f"alone: use family 'recurrent', or one of {', '.join(ATTENTION)}"
        )
    warn_of_lost_position(settings)
    return make(settings, vocab_sizes)


def warn_of_lost_position(settings: ModelSettings) -> None:
    """Warn where a position scheme is in the settings and never reaches a layer."""
    pre_norm = settings.family != "recurrent" and (settings.norm, settings.norm_place) == ("layer", "before")
    joined = settings.position.options.get("join") == "concatenate"
    if pre_norm and not joined and settings.position.name == "index":
        warnings.warn(
            "position 'index' with pre-norm is the same as none: it adds one number to all features of a token, and "
            "layer normalisation subtracts their mean; use norm_place 'after', norm 'rms' or another position",
            stacklevel=3,
        )


def build_transformer(settings: ModelSettings, vocab_sizes: tuple[int, int]) -> Transformer:
    """Build encoder and decoder; all layers of a stack share one position scheme."""
    encoder_position, decoder_position = build_position(settings, "both"), build_position(settings, "past")
    src, tgt, output = build_embeddings(settings, vocab_sizes, encoder_position, decoder_position)
    encoder_layers = [
        EncoderLayer(_heads(settings, encoder_position), _feed_forward(settings), _residuals(settings, 2))
        for _ in range(settings.n_encoder_layers)
    ]
    decoder_layers = [
        DecoderLayer(
            _heads(settings, decoder_position),
            _heads(settings, NoPosition()),
            _feed_forward(settings),
            _residuals(settings, 3),
        )
        for _ in range(settings.n_decoder_layers)
    ]
    encoder, decoder = Encoder(encoder_layers, _last_norm(settings)), Decoder(decoder_layers, _last_norm(settings))
    return Transformer(src, tgt, encoder, decoder, output)


def build_decoder_only(settings: ModelSettings, vocab_sizes: tuple[int, int]) -> DecoderOnly:
    """Build a stack of encoder layers, which will run under a causal mask."""
    position = build_position(settings, "past")
    _, tgt, output = build_embeddings(settings, vocab_sizes, position, position)
    layers = [
        EncoderLayer(_heads(settings, position), _feed_forward(settings), _residuals(settings, 2))
        for _ in range(settings.n_decoder_layers)
    ]
    return DecoderOnly(tgt, Encoder(layers, _last_norm(settings)), output)


def build_recurrent(settings: ModelSettings, vocab_sizes: tuple[int, int]) -> Recurrent:
    """Build a bidirectional GRU, a GRU, and an attention of one head between them."""
    D = settings.d_model
    if D % 2:
        raise ValueError(f"d_model must be even, half for each direction of the encoder, got {D}")
    choose(NORM, settings.norm, "norm")
    choose(ACTIVATION, settings.activation, "activation")
    if settings.position.name in NEEDS_HEADS:
        raise ValueError(
            f"position {settings.position.name!r} has no meaning in a recurrent model: it acts inside self-attention, "
            "and there is none; use none or a scheme that acts on token vectors"
        )
    positions = build_position(settings, "both"), build_position(settings, "past")
    src, tgt, output = build_embeddings(settings, vocab_sizes, *positions)
    sizes = {"n_heads": 1, "d_query": D, "d_key": D}
    # One key is left where there is no choice: its weight is 1, whatever the score.
    table = {**ATTENTION, NO_ATTENTION: ScaledDot}
    attention = build_part(table, settings.attention, "attention", sizes)
    context = "last" if settings.attention.name == NO_ATTENTION else "attention"
    encoder = GRUEncoder(D, settings.n_encoder_layers, settings.dropout, settings.state_norm)
    decoder = GRUDecoder(D, D, D, settings.n_decoder_layers, settings.dropout, settings.state_norm)
    return Recurrent(src, tgt, attention, encoder, decoder, output, settings.dropout, context)


def build_embeddings(
    settings: ModelSettings, vocab_sizes: tuple[int, int], src_position: Position, tgt_position: Position
) -> tuple[Embedding, Embedding, Output]:
    """Build the embeddings of source and target and the output, which share tables as the settings say."""
    n_src, n_tgt = vocab_sizes
    src_shares, output_shares = choose(SHARED_TABLES, settings.tie, "tie")
    if src_shares and n_src != n_tgt:
        way_out = {"all": "target", "inputs": "none"}[settings.tie]
        raise ValueError(
            f"tie {settings.tie!r} needs one vocabulary for both sides, got {n_src} and {n_tgt} pieces: use {way_out!r}"
        )
    width = settings.d_model - _code_width(settings)
    if width < 1:
        raise ValueError(f"position.width must leave the token a feature of {settings.d_model}, got {width} left")
    if output_shares and width < settings.d_model:
        way_out = "inputs" if src_shares else "none"
        raise ValueError(
            f"a concatenated position leaves a token {width} of {settings.d_model} features, so the output cannot "
            f"share its table, got tie {settings.tie!r}: use {way_out!r}, also for what you compare it with"
        )
    tgt = _table(settings, n_tgt, width)
    src = tgt if src_shares else _table(settings, n_src, width)
    output = tgt if output_shares else _table(settings, n_tgt, settings.d_model)
    sides = [
        Embedding(table, position, settings.dropout, settings.scale_embedding, _embedding_norm(settings))
        for table, position in ((src, src_position), (tgt, tgt_position))
    ]
    return sides[0], sides[1], Output(output, settings.output_bias)


def _embedding_norm(settings: ModelSettings) -> Norm | None:
    if settings.embedding_norm and settings.norm == "batch":
        raise ValueError("embedding_norm must be that of each token by itself, got norm 'batch': use 'layer' or 'rms'")
    return choose(NORM, settings.norm, "norm")(settings.d_model) if settings.embedding_norm else None


def _table(settings: ModelSettings, vocab_size: int, width: int) -> nn.Embedding | FactoredTable:
    codes = settings.d_embedding
    if codes is None:
        return make_table(vocab_size, width, PAD)
    if not 1 <= codes < width:
        raise ValueError(f"d_embedding must lie in 1 … {width - 1}, below the width of token vectors, got {codes}")
    return FactoredTable(vocab_size, codes, width, PAD)


def build_position(settings: ModelSettings, sees: str) -> Position:
    """Build the position scheme of one stack, which sees both ways or the past alone."""
    d_head = settings.d_model // settings.n_heads
    options = dict(settings.position.options)
    if options.get("join") == "concatenate":
        options["width"] = _code_width(settings)
    sizes = {
        "n_heads": settings.n_heads,
        "d_head": d_head,
        "width": settings.d_model,
        "scale": _scale(settings.attention.name, d_head),
        "sees": sees,
    }
    return build_part(POSITION, replace(settings.position, options=options), "position", sizes)


def build_heads(settings: HeadsSettings) -> MultiHeadAttention:
    """Build one multi-head attention layer, or raise ValueError where its parts have no meaning together."""
    d_model = settings.d_model
    given = (settings.d_query, settings.d_key, settings.d_value)
    d_query, d_key, d_value = (d_model if width is None else width for width in given)
    check_sizes(d_model, settings.n_heads, d_query, d_key, d_value)
    d_head = d_model // settings.n_heads
    sizes = {
        "n_heads": settings.n_heads,
        "d_head": d_head,
        "width": d_model,
        "scale": _scale(settings.attention.name, d_head),
    }
    refuse_meaningless(settings.attention.name, settings.position.name)
    if settings.position.name in ON_TOKENS:
        raise ValueError(
            f"position {settings.position.name!r} acts on token vectors and does nothing inside a layer: use "
            f"`regard.POSITION[{settings.position.name!r}](…).embed(x, positions)` as the layer's input, or one that "
            f"acts between queries and keys: {', '.join(sorted(NEEDS_HEADS))}"
        )
    position = build_part(POSITION, settings.position, "position", sizes)
    return assemble_heads(settings, position, (d_query, d_key, d_value))


def assemble_heads(
    settings: HeadsSettings, position: Position, d_inputs: tuple[int, int, int] | None = None
) -> MultiHeadAttention:
    """Build the layer around a position scheme that other layers may share."""
    d_head = settings.d_model // settings.n_heads
    sizes = {"n_heads": settings.n_heads, "d_query": d_head, "d_key": d_head}
    attention = build_part(ATTENTION, settings.attention, "attention", sizes)
    return MultiHeadAttention(attention, position, settings.d_model, settings.n_heads, d_inputs, settings.bias)


def refuse_meaningless(attention: str, position: str) -> None:
    """Raise ValueError, with the reason, for a pair of attention and position that has no meaning."""
    reason = REFUSED.get((attention, position))
    if reason is not None:
        partners = [name for name in ATTENTION if (name, position) not in REFUSED]
        raise ValueError(f"{position!r} has no meaning with {attention!r}: {reason}; use {' or '.join(partners)}")


def build_part(table: Mapping[str, Callable[..., M]], part: PartSettings, what: str, sizes: Mapping[str, Any]) -> M:
    """Build one part: of the sizes it gets those that its constructor names, of the options all."""
    make = choose(table, part.name, what)
    accepted = inspect.signature(make).parameters
    arguments = {size: value for size, value in sizes.items() if size in accepted}
    for option, value in part.options.items():
        if option not in accepted:
            raise ValueError(unknown(option, list(accepted), f"option of {what} {part.name!r}"))
        arguments[option] = check_value(accepted[option].annotation, value, f"{what}.{option}")
    return make(**arguments)


def _scale(attention: str, d_head: int) -> float:
    """Return the scale of the dot product, which relative keys are part of."""
    return 1.0 if attention == "dot" else d_head**-0.5


def _code_width(settings: ModelSettings) -> int:
    """Return the width of a concatenated code: a quarter of the stream, unless set."""
    if settings.position.options.get("join") != "concatenate":
        return 0
    return settings.position.options.get("width", settings.d_model // 4)


def _heads(settings: ModelSettings, position: Position) -> MultiHeadAttention:
    refuse_meaningless(settings.attention.name, settings.position.name)
    layer = HeadsSettings(settings.d_model, settings.n_heads, attention=settings.attention)
    return assemble_heads(layer, position)


def _feed_forward(settings: ModelSettings) -> FeedForward:
    return FeedForward(settings.d_model, settings.d_ff, settings.activation, settings.dropout)


def _residuals(settings: ModelSettings, n: int) -> list[Residual]:
    norm_first = choose(NORM_FIRST, settings.norm_place, "norm_place")
    norm = choose(NORM, settings.norm, "norm")
    return [Residual(norm(settings.d_model), norm_first, settings.dropout) for _ in range(n)]


def _last_norm(settings: ModelSettings) -> Norm | None:
    first = choose(NORM_FIRST, settings.norm_place, "norm_place")
    return choose(NORM, settings.norm, "norm")(settings.d_model) if first else None
