"""Makers that many tests share: entries of the tables with their sizes, their inputs, and masks of every kind."""

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.attention import ATTENTION, Attention
from regard.mask import Mask, allow, causal, padding, padding_both, window
from regard.position import POSITION, Position

# Distinct primes, so that no two axes can be mistaken for each other.
B, H, Q, K, E, E_KEY, E_VALUE, D = 2, 3, 5, 7, 11, 13, 17, 19
FLOATS = (torch.float64, torch.float32, torch.bfloat16)


def make_attention(name: str, dropout: float = 0.0) -> Attention:
    """Makes an entry of the table in float64; parameters that start alike are moved apart."""
    torch.manual_seed(7)
    sizes = {"n_heads": H, "d_query": E, "d_key": key_width(name)}
    attention = ATTENTION[name](**_named(ATTENTION[name], sizes), dropout=dropout).double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return attention


def key_width(name: str) -> int:
    """Gives keys another width than queries wherever the entry can take it."""
    return E_KEY if "d_key" in inspect.signature(ATTENTION[name]).parameters else E


def make_inputs(name: str, n_queries: int = Q, n_keys: int = K, seed: int = 1, batch: int = B) -> list[Tensor]:
    """Makes q, k and v for an entry of the table of attentions."""
    lengths_widths = ((n_queries, E), (n_keys, key_width(name)), (n_keys, E_VALUE))
    return [noise(batch, H, length, width, seed=seed + i) for i, (length, width) in enumerate(lengths_widths)]


def make_position(name: str, width: int = E, **options: object) -> Position:
    """Makes an entry of the table in float64, for vectors and heads of one width."""
    torch.manual_seed(7)
    sizes = {"n_heads": H, "d_head": width, "width": width}
    return POSITION[name](**(_named(POSITION[name], sizes) | options)).double()


def make_places(position: Position, first: int, n: int) -> Tensor:
    """Gives n places one after another; further coordinates, where there are any, run through 0 and 1."""
    walk = torch.arange(first, first + n)
    axes = [walk, *(walk // (axis + 1) % 2 for axis in range(1, position.n_axes))]
    return walk[None] if position.n_axes == 1 else torch.stack(axes, dim=-1)[None]


def noise(*shape: int, seed: int) -> Tensor:
    """Draws from a normal distribution, in float64, by a generator of its own."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def leaves(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Gives copies that collect gradients."""
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def dense(mask: Mask, n_queries: int = Q, n_keys: int = K) -> Tensor:
    """Writes a mask out in full, (B, H, Q, K)."""
    tile = mask.tile(range(n_queries), range(n_keys), torch.device("cpu"))
    everything = torch.ones(B, H, n_queries, n_keys, dtype=torch.bool)
    return everything if tile is None else everything & tile


def some(*shape: int, seed: int = 3) -> Tensor:
    """Draws a boolean tensor, and forbids all keys to its last query."""
    allowed = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.6
    allowed[..., -1, :] = False
    return allowed


MASKS: dict[str, Callable[[int, int], Mask]] = {
    "everything": lambda q, k: Mask(),
    "padding": lambda q, k: padding([k, k // 2], k),
    "padding with an empty sequence": lambda q, k: padding([0, k - 1], k),
    "padding per query": lambda q, k: padding((torch.arange(B * q) * 3 % (k + 1)).reshape(B, q), k),
    "padding of both": lambda q, k: padding_both([k // 2, k], k),
    "causal": lambda q, k: causal(),
    "causal after a cache": lambda q, k: causal(offset=2),
    "window": lambda q, k: window(1),
    "window after a cache": lambda q, k: window(1, offset=2),
    "any (Q, K)": lambda q, k: allow(some(q, k)),
    "any (B, Q, K)": lambda q, k: allow(some(B, q, k)),
    "any (B, H, Q, K)": lambda q, k: allow(some(B, H, q, k)),
    "nobody": lambda q, k: allow(torch.zeros(1, 1, dtype=torch.bool)),
    "causal, padding": lambda q, k: causal() & padding([k, k // 2], k),
    "causal, padding of both": lambda q, k: causal() & padding_both([k // 2, k], k),
    "causal, window": lambda q, k: causal() & window(2),
    "causal, window after a cache": lambda q, k: causal(offset=2) & window(3, offset=2),
    "causal, any": lambda q, k: causal() & allow(some(B, H, q, k)),
    "all rules": lambda q, k: causal() & padding_both([k // 2, k], k) & window(2) & allow(some(B, H, q, k)),
}

BIASES: dict[str, tuple[int, ...] | None] = {
    "no bias": None,
    "full bias": (B, H, Q, K),
    "bias per head and key": (1, H, 1, K),
    "bias per query": (B, 1, Q, 1),
    "one bias": (1, 1, 1, 1),
}


def make_bias(kind: str, seed: int = 5) -> Tensor | None:
    """Draws a bias of the named shape."""
    shape = BIASES[kind]
    return None if shape is None else noise(*shape, seed=seed)


def gradients(out: Tensor, inputs: Sequence[Tensor], seed: int = 11) -> list[Tensor]:
    """Gives the gradients of a random linear function of `out`, for every one of the inputs."""
    return list(torch.autograd.grad((out * noise(*out.shape, seed=seed).to(out.dtype)).sum(), inputs))


def exactly(actual: Tensor, expected: Tensor) -> None:
    """Asserts equality to the last bit."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def _named(make: Callable[..., object], sizes: dict[str, int]) -> dict[str, int]:
    accepted = inspect.signature(make).parameters
    return {size: value for size, value in sizes.items() if size in accepted}
