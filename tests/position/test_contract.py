"""A bias by offset is the bias itself.

The laws that every position scheme in the table keeps.
Adding or concatenating codes.
"""

import inspect

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from regard.position import POSITION, OffsetBias, Position
from regard.position.contract import add, check, check_range, concatenate
from tests.parts import B, E, H, K, Q, exactly, leaves, make_places, make_position, noise

KNOWN = ["t5", "alibi", "shaw"]


def places():
    return torch.tensor([[4, 5, 6, 7, 300], [0, 1, 2, 2, 0]]), torch.arange(0, 200, 9)[None]


@pytest.mark.parametrize("name", KNOWN)
def test_written_out_it_is_the_bias_in_value_and_gradient(name):
    scheme, (q_places, k_places) = make_position(name), places()
    q, k = noise(B, H, 5, E, seed=1).requires_grad_(), noise(B, H, k_places.shape[1], E, seed=2)
    by_offset = scheme.offset_bias(q, q_places, k_places)
    bias, written = scheme.bias(q, k, q_places, k_places), by_offset.materialise(q.dtype)
    assert_close(written.expand(B, -1, -1, -1), bias.expand(B, -1, -1, -1), rtol=1e-12, atol=1e-12)
    wanted = [*scheme.parameters(), *([q] if name == "shaw" else [])]
    if bias.requires_grad:
        ahead = noise(*bias.shape, seed=3)
        for one, other in zip(
            torch.autograd.grad((written * ahead).sum(), wanted),
            torch.autograd.grad((bias * ahead).sum(), wanted),
            strict=True,
        ):
            assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in POSITION if name not in KNOWN])
def test_other_schemes_know_none(name):
    scheme = make_position(name, width=12)
    q, at = noise(B, H, 3, 12, seed=1), torch.arange(3)[None]
    at = at if scheme.n_axes == 1 else at[..., None].expand(-1, -1, scheme.n_axes)
    assert scheme.offset_bias(q, at, at) is None


@pytest.mark.parametrize("name", KNOWN)
def test_a_position_below_zero_is_refused(name):
    at, below = torch.arange(3)[None], torch.tensor([[0, -2, 1]])
    with pytest.raises(ValueError, match="k_positions must be 0 or more, got -2"):
        make_position(name).offset_bias(noise(B, H, 3, E, seed=1), at, below)


def test_both_parts_add_up_and_offsets_beyond_the_reach_share_an_entry():
    at = torch.arange(4)[None]
    table = torch.tensor([10.0, 20.0, 30.0], dtype=torch.float64)[None, None, None]
    bias = OffsetBias(at, at, table, torch.tensor([0.5], dtype=torch.float64))
    assert bias.max_offset == 1
    expected = [[20, 29.5, 29, 28.5], [9.5, 20, 29.5, 29], [9, 9.5, 20, 29.5], [8.5, 9, 9.5, 20]]
    assert_close(bias.materialise(torch.float64)[0, 0], torch.tensor(expected, dtype=torch.float64))


EVERY = pytest.mark.parametrize("name", POSITION)
LINE = [name for name in POSITION if make_position(name).n_axes == 1]
ON_A_LINE = pytest.mark.parametrize("name", LINE)
OPEN = [name for name in POSITION if name != "none"]
# All but the one whose code needs the whole sentence: test_absolute shows what that costs it.
WITHOUT_THE_WHOLE = [name for name in POSITION if name != "normalised"]


def through_doors(position: Position, x: Tensor, q: Tensor, k: Tensor, at_q: Tensor, at_k: Tensor) -> dict[str, Tensor]:
    """Goes through every door that is open, x and q standing at the same places."""
    found = {"embed": position.embed(x, at_q)}
    if position.n_axes == 1:
        found["rotate"] = position.rotate(q, at_q)
        bias = position.bias(q, k, at_q, at_k)
        found |= {} if bias is None else {"bias": bias.expand(len(q), -1, -1, -1)}
    return found


def tokens(width: int = E, n_queries: int = Q, n_keys: int = K) -> list[Tensor]:
    shapes = ((B, n_queries, width), (B, H, n_queries, width), (B, H, n_keys, width))
    return [noise(*shape, seed=seed) for seed, shape in enumerate(shapes)]


def outcome(position: Position, first: int = 0) -> dict[str, Tensor]:
    return through_doors(position, *tokens(), make_places(position, first, Q), make_places(position, 0, K))


def test_every_scheme_but_none_opens_a_door():
    for name in POSITION:
        found, (x, q, _) = outcome(make_position(name), first=2), tokens()
        opened = not found["embed"].equal(x) or "bias" in found or not found.get("rotate", q).equal(q)
        assert opened == (name != "none")


@ON_A_LINE
def test_rotation_keeps_norms(name):
    position, q = make_position(name), noise(B, H, Q, E, seed=1)
    torch.testing.assert_close(position.rotate(q, make_places(position, 97, Q)).norm(dim=-1), q.norm(dim=-1))


@ON_A_LINE
def test_rotation_is_the_identity_at_zero(name):
    q = noise(B, H, Q, E, seed=1)
    exactly(make_position(name).rotate(q, torch.zeros(1, Q, dtype=torch.long)), q)


@ON_A_LINE
@pytest.mark.parametrize("shift", [1, 13, 501])
def test_scores_depend_on_distance_alone(name, shift):
    position, (_, q, k) = make_position(name), tokens()

    def scores(shift):
        at_q, at_k = make_places(position, shift, Q), make_places(position, shift, K)
        bias = position.bias(q, k, at_q, at_k)
        turned = position.rotate(q, at_q) @ position.rotate(k, at_k).mT
        return turned if bias is None else turned + bias

    torch.testing.assert_close(scores(shift), scores(0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", WITHOUT_THE_WHOLE)
def test_offset_places_equal_a_slice_of_the_full_table(name):
    position, (x, q, k), start = make_position(name), tokens(), 2
    at_q, at_k = make_places(position, 0, Q), make_places(position, 0, K)
    full = through_doors(position, x, q, k, at_q, at_k)
    later = through_doors(position, x[:, start:], q[:, :, start:], k, at_q[:, start:], at_k)
    for door, found in later.items():
        torch.testing.assert_close(
            found, full[door].narrow(-2, start, Q - start), msg=lambda said, door=door: door + said
        )


@pytest.mark.parametrize("name", WITHOUT_THE_WHOLE)
@pytest.mark.parametrize("t", range(Q))
def test_one_step_after_a_cache_equals_its_row(name, t):
    position, (x, q, k) = make_position(name), tokens()
    at_q, at_k = make_places(position, 0, Q), make_places(position, 0, K)
    full = through_doors(position, x, q, k, at_q, at_k)
    step = through_doors(position, x[:, [t]], q[:, :, [t]], k[:, :, : t + 1], at_q[:, [t]], at_k[:, : t + 1])
    for door, found in step.items():
        row = full[door].narrow(-2, t, 1)
        torch.testing.assert_close(found, row[..., : t + 1] if door == "bias" else row)


@EVERY
def test_each_sequence_stands_where_it_says(name):
    position, (x, q, k) = make_position(name), tokens()
    at_q = torch.cat([make_places(position, 0, Q), make_places(position, 4, Q)])
    at_k = torch.cat([make_places(position, 0, K), make_places(position, 3, K)])
    together = through_doors(position, x, q, k, at_q, at_k)
    for b in range(B):
        alone = through_doors(position, x[[b]], q[[b]], k[[b]], at_q[[b]], at_k[[b]])
        for door, found in alone.items():
            torch.testing.assert_close(together[door][[b]], found)


@EVERY
def test_places_for_all_sequences_at_once_are_those_of_each(name):
    position, (x, q, k) = make_position(name), tokens()
    at_q, at_k = make_places(position, 1, Q), make_places(position, 0, K)
    every = through_doors(position, x, q, k, *(torch.cat([at] * B) for at in (at_q, at_k)))
    for door, found in through_doors(position, x, q, k, at_q, at_k).items():
        torch.testing.assert_close(every[door], found)


OTHER = {
    "base": 100.0,
    "code": "half_wave",
    "join": "concatenate",
    "max_distance": 17,
    "max_len": 1009,
    "n_buckets": 8,
    "n_speakers": 3,
    "scale": 0.5,
    "sees": "past",
    "values": True,
}
BESIDE = {("difference", "max_len"): {"code": "half_wave"}}  # without which an option says nothing
OPTIONS = [
    (name, option)
    for name, make in POSITION.items()
    for option, parameter in inspect.signature(make).parameters.items()
    if parameter.default is not inspect.Parameter.empty and option not in {"n_axes", "limit"}
]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_two_instances_with_other_settings_differ(name, option):
    beside = BESIDE.get((name, option), {})
    one = make_position(name, **beside)
    before = {door: tensor.detach().clone() for door, tensor in outcome(one, 50).items()}
    other = make_position(name, **beside, **{option: OTHER[option]})
    found = outcome(other, 50)
    changed = any(found[door].shape != before[door].shape or not found[door].equal(before[door]) for door in found)
    tables = [[p.shape for p in position.parameters()] for position in (one, other)]
    assert changed or tables[0] != tables[1]
    for door, again in outcome(one, 50).items():
        exactly(again, before[door])


@EVERY
@pytest.mark.parametrize("width", [3, 4, 7, 8])
def test_any_width_works(name, width):
    position, (x, q, k) = make_position(name, width), tokens(width)
    found = through_doors(position, x, q, k, make_places(position, 0, Q), make_places(position, 0, K))
    assert found["embed"].shape == (B, Q, width)
    assert found.get("rotate", q).shape == (B, H, Q, width)
    assert all(tensor.isfinite().all() for tensor in found.values())


@EVERY
def test_a_far_place_works_or_is_refused(name):
    position = make_position(name)
    x, q, k = tokens()
    far, near = make_places(position, 10**6 - Q + 1, Q), make_places(position, 0, K)
    try:
        found = through_doors(position, x, q, k, far, near)
    except ValueError as error:
        assert name in {"learned", "half_wave"}
        assert "must be below 1024, the end of the table, got 1000000" in str(error)
    else:
        assert all(tensor.isfinite().all() for tensor in found.values())


@EVERY
def test_no_token_gives_an_empty_result(name):
    position, (x, q, k) = make_position(name), tokens(n_queries=0)
    found = through_doors(position, x, q, k, make_places(position, 0, 0), make_places(position, 0, K))
    assert all(tensor.numel() == 0 for tensor in found.values())


@EVERY
def test_gradients_pass_gradcheck_for_inputs_and_tables(name):
    inputs = leaves([x[:1] for x in tokens(width=5)])
    position = make_position(name, 5, **({"max_len": 11} if (name, "max_len") in OPTIONS else {}))
    tables = {key: value.detach().clone().requires_grad_() for key, value in position.named_parameters()}
    at_q, at_k = make_places(position, 1, Q), make_places(position, 0, K)

    class Doors(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.position = position

        def forward(self, *inputs):
            return tuple(through_doors(self.position, *inputs, at_q, at_k).values())

    def run(x, q, k, *values):
        named = {f"position.{key}": value for key, value in zip(tables, values, strict=True)}
        return torch.func.functional_call(Doors(), named, (x, q, k))

    assert torch.autograd.gradcheck(run, (*inputs, *tables.values()), fast_mode=True)


@EVERY
@pytest.mark.parametrize(
    ("dtype", "near"), [(torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 1e-2)], ids=str
)
@pytest.mark.parametrize("first", [0, 1000])
def test_low_precision_stays_near(name, dtype, near, first):
    position = make_position(name).to(dtype)
    places = make_places(position, first, Q), make_places(position, first, K)
    rounded = [x.to(dtype) for x in tokens()]
    found = through_doors(position, *rounded, *places)
    assert all(tensor.dtype == dtype for tensor in found.values())
    expected = through_doors(position.double(), *(x.double() for x in rounded), *places)
    for door, exact in expected.items():
        torch.testing.assert_close(found[door].double(), exact, rtol=2 * near, atol=4 * near)


@pytest.mark.parametrize("name", OPEN)
def test_a_negative_place_is_refused(name):
    position = make_position(name)
    at_q, at_k = make_places(position, 0, Q), make_places(position, 0, K)
    at_q[0, 2] = -3
    with pytest.raises(ValueError, match=r"must be 0 or more, got -3"):
        through_doors(position, *tokens(), at_q, at_k)
    if "bias" in outcome(position):
        at_q, at_k = make_places(position, 0, Q), -at_k
        with pytest.raises(ValueError, match=r"k_positions must be 0 or more, got -6"):
            position.bias(*tokens()[1:], at_q, at_k)


@pytest.mark.parametrize("name", [name for name in POSITION if name not in LINE])
@pytest.mark.parametrize("shape", [(1, Q), (1, Q, 1), (1, Q, 4)], ids=str)
def test_another_number_of_coordinates_is_refused(name, shape):
    n_axes = make_position(name).n_axes
    said = rf"positions must have shape \(B, T, {n_axes}\), got \({', '.join(map(str, shape))}\)"
    with pytest.raises(ValueError, match=said):
        make_position(name).embed(noise(B, Q, E, seed=1), torch.zeros(shape, dtype=torch.long))


@pytest.mark.parametrize("shape", [(5,), (2, 5, 1), (2, 5, 2), (2, 5, 1, 1)], ids=str)
def test_a_line_takes_one_number_for_each_token(shape):
    check(torch.zeros(2, 5, dtype=torch.long))
    with pytest.raises(
        ValueError, match=rf"positions must have shape \(B, T\), got \({', '.join(map(str, shape))},?\)"
    ):
        check(torch.zeros(shape, dtype=torch.long))


def test_the_range_of_places_is_checked_at_both_ends():
    check_range(torch.tensor([0, 4]), 5, "places")
    check_range(torch.tensor([10**12]), None, "places")
    check_range(torch.tensor([], dtype=torch.long), 1, "places")
    with pytest.raises(ValueError, match="places must be below 5, the end of the table, got 5: build a larger table"):
        check_range(torch.tensor([0, 5]), 5, "places")
    with pytest.raises(ValueError, match="places must be 0 or more, got -1"):
        check_range(torch.tensor([-1, 9]), 5, "places")


@pytest.mark.parametrize("name", [name for name in POSITION if name not in LINE])
def test_shut_doors_take_places_with_any_number_of_coordinates(name):
    position, (_, q, k) = make_position(name), tokens()
    at_q, at_k = make_places(position, 0, Q), make_places(position, 0, K)
    exactly(position.rotate(q, at_q), q)
    assert position.bias(q, k, at_q, at_k) is None
    assert position.pool(lambda: noise(B, H, Q, K, seed=1), at_q, at_k) is None


@pytest.mark.parametrize("name", [name for name, option in OPTIONS if option == "base"])
@pytest.mark.parametrize("base", [1.0, 0.5, -10000.0])
def test_a_base_of_one_or_less_is_refused(name, base):
    with pytest.raises(ValueError, match=f"base must be larger than 1, got {base}"):
        outcome(make_position(name, base=base))


@pytest.mark.parametrize("name", [name for name, option in OPTIONS if option == "max_len"])
@pytest.mark.parametrize("max_len", [0, -5])
def test_a_table_without_places_is_refused(name, max_len):
    with pytest.raises(ValueError, match=f"max_len must be 1 or more positions, got {max_len}"):
        make_position(name, max_len=max_len)


@pytest.mark.parametrize("name", [name for name, option in OPTIONS if option == "max_len" and name != "difference"])
def test_places_past_the_end_of_a_table_are_refused(name):
    position, x = make_position(name, max_len=7), noise(B, Q, E, seed=1)
    assert position.embed(x, make_places(position, 7 - Q, Q)).isfinite().all()
    with pytest.raises(ValueError, match="must be below 7, the end of the table, got 7: build a larger table"):
        position.embed(x, make_places(position, 8 - Q, Q))


@pytest.mark.parametrize("name", [name for name, option in OPTIONS if option == "join"])
def test_no_width_is_refused(name):
    with pytest.raises(ValueError, match=r"width must .*, got 0"):
        make_position(name, width=0)


@pytest.mark.parametrize("name", [name for name, option in OPTIONS if option == "join"])
def test_an_unknown_way_to_join_is_refused(name):
    with pytest.raises(
        ValueError, match="unknown join 'concat': did you mean 'concatenate'\\? valid are add, concatenate"
    ):
        make_position(name, join="concat")


@EVERY
@pytest.mark.parametrize("n", [0, 1, 2, 31])
def test_places_in_reading_order_are_distinct_and_fit_the_scheme(name, n):
    position = make_position(name)
    places = position.first_positions(n)
    assert places.shape == ((1, n) if position.n_axes == 1 else (1, n, position.n_axes))
    assert len({tuple(place) for place in places.reshape(n, position.n_axes).tolist()}) == n
    if n:
        assert position.embed(noise(B, n, E, seed=1), places).isfinite().all()


T, WIDTH = 5, 3


@pytest.mark.parametrize("batch", [1, B])
def test_adding_keeps_the_width(batch):
    x, codes = noise(B, T, E, seed=1), noise(batch, T, E, seed=2)
    for b in range(B):
        exactly(add(x, codes)[b], x[b] + codes[b % batch])


@pytest.mark.parametrize("batch", [1, B])
def test_concatenating_sets_codes_beside_vectors(batch):
    x, codes = noise(B, T, E, seed=1), noise(batch, T, WIDTH, seed=2)
    joined = concatenate(x, codes)
    exactly(joined[..., :E], x)
    exactly(joined[..., E:], codes.expand(B, T, WIDTH))


def test_adding_another_width_is_refused():
    with pytest.raises(ValueError, match="must be as wide as the vectors, 11, got 3"):
        add(noise(B, T, E, seed=1), noise(1, T, WIDTH, seed=2))


@pytest.mark.parametrize("name", ["index", "normalised", "sinusoidal", "learned", "half_wave", "grid_2d", "turns"])
def test_schemes_join_as_they_are_told(name):
    x = noise(B, T, E, seed=1)
    for width, join, expected in ((E, "add", E), (5, "concatenate", E + 5)):
        position = make_position(name, width, join=join)
        places = make_places(position, 0, T)
        found = position.embed(x, places)
        assert found.shape == (B, T, expected)
        codes = position.codes(places)
        torch.testing.assert_close(found, x + codes if join == "add" else torch.cat([x, codes.expand(B, T, 5)], dim=-1))
