"""Position encodings as the laws see them: built for a length and a width, or taken from a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from regard.build import build_part
from regard.checkpoint import model_folder
from regard.checkpoint.weights import load_model
from regard.config import PartSettings
from regard.model import Seq2Seq
from regard.model.layers import Embedding
from regard.position import POSITION, Difference, Position
from regard.position.absolute import Absolute, frequencies, shift_matrix
from regard.shapes import Float, Int
from regard.study.laws import BLOCK, EncodingView, pairs_at, step_axis
from regard.zoo import find_model

N_HEADS = 8
LENGTH, WIDTH = 512, 128
BASE = 10000.0
MAX_NUMBERS = 2**26  # in the codes of one encoding


class Sines(Absolute):
    """Encode position p by the sines alone of twice as many wavelengths, to see what the cosines are for."""

    def __init__(self, width: int, base: float = BASE):
        super().__init__(width)
        self.base = base

    def codes(self, positions: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        angles = positions[..., None].to(torch.float64) * frequencies(2 * self.width, self.base, positions.device)
        return angles.sin()


# What can be measured: the table of encodings, differences of other codes, and an encoding that no model would use.
MEASURED = {
    **POSITION,
    "difference:half_wave": partial(Difference, code="half_wave"),
    "difference:index": partial(Difference, code="index"),
    "sines": Sines,
}


@dataclass(frozen=True, eq=False)
class MeasuredScheme:
    """An encoding with what it acts on: vectors of `d_input` features, or heads of `d_head`."""

    label: str
    scheme: Position
    length: int
    d_input: int  # 0 where codes are set beside the vector
    d_head: int
    n_heads: int
    base: float | None = None  # of sinusoidal codes, whose shift is known by its formula
    again: Position | None = None  # the same from another random start
    sees: str = "both"  # or the past alone

    def view(self, n: int) -> EncodingView:
        """Return the view of the first n positions."""
        return view(self.scheme, n, self.d_head, self.n_heads, self.d_input, self.sees)

    @property
    def d_model(self) -> int:
        """The width of the layer above."""
        return self.d_input or self.d_head * self.n_heads

    def far_width(self, door: str) -> int:
        """Return the width of the vectors that the encoding adds to or rotates."""
        return self.d_input if door == "embed" else self.d_head


def check_size(length: int, width: int) -> None:
    """Raise ValueError for codes that would not fit into memory."""
    if length * width > MAX_NUMBERS:
        raise ValueError(
            f"length times width must be at most {MAX_NUMBERS:,} numbers, got {length:,} times {width}: choose less"
        )


def check_shifts(shifts: Sequence[int], length: int) -> None:
    """Raise ValueError for a shift that no two positions are apart."""
    for steps in shifts:
        if steps == 0 or abs(steps) >= length:
            raise ValueError(f"a shift must be 1 or more positions and less than the length {length}, got {steps}")


def make(name: str, length: int, width: int, base: float, seed: int) -> Position:
    """Build an encoding in float64 with tables just long enough."""
    sizes = {"width": width, "d_head": width, "n_heads": N_HEADS, "base": base, "max_len": length}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_part(MEASURED, PartSettings(name), "position", sizes).double()


def named_scheme(name: str, length: int, width: int, base: float) -> MeasuredScheme:
    """Build an encoding of the table twice, from two random starts."""
    scheme, again = (make(name, length, width, base, seed) for seed in (0, 1))
    known = base if name == "sinusoidal" else None
    return MeasuredScheme(name, scheme, length, width, width, N_HEADS, known, again)


def model_schemes(path: str, length: int | None) -> list[MeasuredScheme]:
    """Return the encodings of a model's encoder and decoder as they were trained; raise ValueError past their end."""
    checkpoint = load_model(model_folder(find_model(path)))
    model, made = checkpoint.model, checkpoint.settings.model
    known = made.position.options.get("base", BASE) if made.position.name == "sinusoidal" else None
    d_input = 0 if made.position.options.get("join") == "concatenate" else made.d_model
    found = []
    for stack, position, sees in _stacks(model):
        n = min(length or LENGTH, position.limit or LENGTH) if length is None else length
        if position.limit is not None and n > position.limit:
            raise ValueError(f"length must be at most {position.limit}, the end of the {stack}'s table, got {n}")
        label, sizes = f"{stack}: {made.position.name}", (d_input, made.d_model // made.n_heads, made.n_heads)
        found.append(MeasuredScheme(label, position.double(), n, *sizes, known, sees=sees))
    return found


def _stacks(model: Seq2Seq) -> list[tuple[str, Position, str]]:
    """Return each stack's encoding, which all its layers share; a decoder sees the past alone."""
    stacks = {"src": ("encoder", "both"), "tgt": ("decoder", "past")}
    embeddings = [(*stacks[name], child) for name, child in model.named_children() if isinstance(child, Embedding)]
    return [(stack, embedding.position, sees) for stack, sees, embedding in embeddings]


def view(
    scheme: Position,
    n: int,
    width: int,
    n_heads: int = N_HEADS,
    d_input: int | None = None,
    sees: str = "both",
) -> EncodingView:
    """Probe an encoding as a black box: does it embed, rotate or bias, and with which codes?"""
    positions = scheme.first_positions(n)
    axes = positions.reshape(n, -1)
    with torch.no_grad():
        zeros = torch.zeros(1, n, width if d_input is None else d_input, dtype=torch.float64)
        codes = scheme.embed(zeros, positions)[0]
        if codes.any():
            return EncodingView.of_codes("embed", axes, codes)
        ones = torch.full((1, 1, 1, 1), width**-0.5, dtype=torch.float64).expand(1, n_heads, n, width)
        rotated = scheme.rotate(ones[:, :1], positions)[0, 0]
        if (rotated != ones[0, 0]).any():
            return EncodingView.of_codes("rotate", axes, rotated)
        if scheme.bias(ones[:, :, :1], ones[:, :, :1], positions[:, :1], positions[:, :1]) is None:
            return EncodingView.of_codes("none", axes, codes)
        codes = _bias_codes(scheme, positions, width, n_heads, sees)

    def products(rows: Int[Tensor, " P"], columns: Int[Tensor, " Q"]) -> Float[Tensor, "P Q"]:
        with torch.no_grad():
            q, k = ones[:, :, : len(rows)], ones[:, :, : len(columns)]
            bias = scheme.bias(q, k, positions[:, rows], positions[:, columns])
        assert bias is not None, "a scheme that opened its bias door has closed it again"
        return bias[0].mean(dim=0)

    return EncodingView("bias", axes, codes, products, n_heads)


def _bias_codes(scheme: Position, positions: Tensor, width: int, n_heads: int, sees: str) -> Tensor:
    """Return what each distance from position 0 adds: per head, or, where it depends on the query, per feature.

    Distances are those of keys ahead, or for a decoder, which sees none, of keys behind.
    """
    features = torch.eye(width, dtype=torch.float64).expand(1, n_heads, width, width)
    key = features[:, :, :1]
    codes = []
    for some in positions.split(max(1, BLOCK // (n_heads * width)), dim=1):
        if sees == "past":
            queries = some.repeat_interleave(width, dim=1)
            wide = features.repeat(1, 1, some.shape[1], 1)
            bias = scheme.bias(wide, key, queries, positions[:, :1])
            assert bias is not None, "a scheme that opened its bias door has closed it again"
            bias = bias.expand(-1, -1, queries.shape[1], -1).unflatten(2, (-1, width))[..., 0].transpose(2, 3)
        else:
            start = positions[:, :1].expand(-1, width)
            bias = scheme.bias(features, key.expand(-1, -1, some.shape[1], -1), start, some)
            assert bias is not None, "a scheme that opened its bias door has closed it again"
        codes.append(bias[0])
    bias = torch.cat(codes, dim=-1)  # (H, W, N)
    return bias[:, 0].T if (bias == bias[:, :1]).all() else bias[0].T


CACHED = 2**18  # numbers that a processor's cache holds


def distinct_up_to(scheme: Position, far: int, width: int, chunk: int | None = None) -> int | None:
    """Return the last position up to which all codes differ, `far` at most; None where the table ends before.

    Codes are projected on one random direction and sorted: codes with different projections differ, and the few with
    the same are compared themselves. Needs one number for each position instead of a code.
    """
    n_features = far_codes(scheme, 0, 1, width).shape[1]
    chunk = chunk or max(1, CACHED // n_features)
    direction = torch.randn(n_features, 1, generator=torch.Generator().manual_seed(0))
    try:
        marks = torch.cat(
            [
                (far_codes(scheme, start, min(start + chunk, far + 1), width) @ direction.double())[:, 0]
                for start in range(0, far + 1, chunk)
            ]
        )
    except ValueError:
        return None
    order = marks.argsort(stable=True)  # equal marks stay in the order of their positions
    same = (marks[order[1:]] == marks[order[:-1]]).nonzero()[:, 0]
    pairs = [sorted((int(order[i]), int(order[i + 1]))) for i in same]
    twins = [b for a, b in pairs if far_codes(scheme, a, a + 1, width).equal(far_codes(scheme, b, b + 1, width))]
    return min(twins, default=far + 1) - 1


def far_codes(scheme: Position, start: int, stop: int, width: int) -> Float[Tensor, "N W"]:
    """Return the codes of consecutive positions: what zeros and ones become, embedded and rotated."""
    positions = torch.arange(start, stop)[None]
    with torch.no_grad():
        added = scheme.embed(torch.zeros(1, stop - start, width, dtype=torch.float64), positions)[0]
        rotated = scheme.rotate(torch.ones(1, 1, stop - start, width, dtype=torch.float64), positions)[0, 0]
    return added + rotated - 1.0 if added.shape == rotated.shape else added  # codes beside the vector rotate nothing


@dataclass(frozen=True, eq=False)
class Moved:
    """A linear map applied to one code: `matrix @ before` is `moved`, and should be `after`."""

    exact: bool  # by its formula, or else fitted to all positions
    matrix: Float[Tensor, "W W"]
    place: int
    before: Float[Tensor, " W"]
    moved: Float[Tensor, " W"]
    after: Float[Tensor, " W"]


def find_shift(view: EncodingView, steps: int, place: int, base: float | None = None) -> Moved | None:
    """Move the position nearest to the wanted one; None where there are no codes, or no two positions so far apart.

    With a base the codes are sinusoidal, and the map is known; else it is fitted by least squares.
    """
    start, end = pairs_at(view.positions, step_axis(view.positions), steps)
    if view.size() == 0.0 or not len(start):
        return None
    width = view.codes.shape[1]
    exact = None if base is None or width % 2 else shift_matrix(steps, width, base)
    # Codes may have dependent features, so the solver must handle any rank.
    fitted = torch.linalg.lstsq(view.codes[start], view.codes[end], driver="gelsd").solution.T
    matrix = fitted if exact is None else exact
    nearest = int((start - place).abs().argmin())
    before, after = view.codes[start[nearest]], view.codes[end[nearest]]
    return Moved(exact is not None, matrix, int(start[nearest]), before, matrix @ before, after)
