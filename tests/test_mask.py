"""Masks: conjunctions, tiles and hidden tiles against rules applied pair by pair."""

from dataclasses import dataclass
from functools import reduce
from operator import and_

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.mask import Mask, allow, causal, padding, padding_both, window
from tests.parts import exactly

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Rules:
    """What a mask is made of, told pair by pair."""

    sizes: tuple[int, int, int, int]  # B, H, Q, K
    lengths: list | None = None
    both: list[int] | None = None
    causal: bool = False
    window: int | None = None
    offset: int = 0
    allowed: Tensor | None = None

    def mask(self) -> Mask:
        K = self.sizes[3]
        parts = [
            *([] if self.lengths is None else [padding(torch.tensor(self.lengths), K)]),
            *([] if self.both is None else [padding_both(self.both, K)]),
            *([causal(self.offset)] if self.causal else []),
            *([] if self.window is None else [window(self.window, self.offset)]),
            *([] if self.allowed is None else [allow(self.allowed)]),
        ]
        return reduce(and_, parts, Mask())

    def allows(self, b: int, h: int, q: int, k: int) -> bool:
        length = self.sizes[3] if self.lengths is None else self.lengths[b]
        end = length[q] if isinstance(length, list) else length
        both = self.both is None or (q < self.both[b] and k < self.both[b])
        stands = q + self.offset
        past = not self.causal or k <= stands
        near = self.window is None or abs(stands - k) <= self.window
        B, H, Q, K = self.sizes
        free = self.allowed is None or bool(self.allowed.expand(B, H, Q, K)[b, h, q, k])
        return k < end and both and past and near and free

    def dense(self) -> Tensor:
        found = torch.zeros(self.sizes, dtype=torch.bool)
        for place in torch.cartesian_prod(*(torch.arange(size) for size in self.sizes)).tolist():
            found[tuple(place)] = self.allows(*place)
        return found


@st.composite
def one_rule_set(draw, sizes, offset):
    B, _, Q, K = sizes
    number = st.integers(0, K)
    row = st.lists(number, min_size=B, max_size=B)
    per_query = st.lists(st.lists(number, min_size=Q, max_size=Q), min_size=B, max_size=B)
    seed = draw(st.integers(0, 2**16))
    shape = [draw(st.sampled_from([1, size])) for size in sizes]
    any_mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.7
    return Rules(
        sizes,
        lengths=draw(st.none() | row | per_query),
        both=draw(st.none() | row),
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(0, 3)),
        offset=offset,
        allowed=draw(st.none() | st.just(any_mask)),
    )


SIZES = st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 5), st.integers(1, 7))
OFFSET = st.integers(0, 4)
RULES = st.tuples(SIZES, OFFSET).flatmap(lambda drawn: one_rule_set(*drawn))
TWO_RULES = st.tuples(SIZES, OFFSET).flatmap(lambda drawn: st.tuples(one_rule_set(*drawn), one_rule_set(*drawn)))


def materialise(mask: Mask, sizes: tuple[int, int, int, int]) -> Tensor:
    tile = mask.tile(range(sizes[2]), range(sizes[3]), CPU)
    return torch.ones(sizes, dtype=torch.bool) if tile is None else tile.expand(sizes)


@given(RULES)
def test_a_mask_is_its_rules_pair_by_pair(rules):
    rules.mask().check(*rules.sizes)
    exactly(materialise(rules.mask(), rules.sizes), rules.dense())


@given(TWO_RULES)
def test_a_conjunction_is_the_elementwise_and(both):
    one, other = both
    expected = one.dense() & other.dense()
    exactly(materialise(one.mask() & other.mask(), one.sizes), expected)
    exactly(materialise(other.mask() & one.mask(), one.sizes), expected)


@given(RULES, st.data())
def test_a_tile_is_a_slice_of_the_whole(rules, data):
    _, _, Q, K = rules.sizes
    rows, keys = (range(*sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in (Q, K))
    tile = rules.mask().tile(rows, keys, CPU)
    expected = rules.dense()[:, :, rows.start : rows.stop, keys.start : keys.stop]
    exactly(torch.ones_like(expected) if tile is None else tile.expand(expected.shape), expected)


@given(RULES, st.data())
def test_a_hidden_tile_allows_nobody(rules, data):
    _, _, Q, K = rules.sizes
    rows, keys = (range(*sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in (Q, K))
    tile = rules.dense()[:, :, rows.start : rows.stop, keys.start : keys.stop]
    if rules.mask().hides(rows, keys):
        assert not tile.any()


@given(
    st.booleans(),
    st.none() | st.integers(0, 5),
    OFFSET,
    st.tuples(*[st.integers(0, 9)] * 2),
    st.tuples(*[st.integers(1, 6)] * 2),
)
def test_causality_and_window_hide_every_tile_they_forbid(is_causal, width, offset, starts, lengths):
    rows, keys = (range(start, start + length) for start, length in zip(starts, lengths, strict=True))
    mask = Rules((1, 1, 1, 1), causal=is_causal, window=width, offset=offset).mask()
    tile = mask.tile(rows, keys, CPU)
    assert mask.hides(rows, keys) == (tile is not None and not tile.any())


@given(st.booleans(), st.none() | st.integers(0, 3), OFFSET)
def test_an_offset_moves_the_queries_down(is_causal, width, offset):
    cached, whole = (Rules((1, 1, 1, 1), causal=is_causal, window=width, offset=at).mask() for at in (offset, 0))
    tiles = cached.tile(range(3), range(9), CPU), whole.tile(range(offset, offset + 3), range(9), CPU)
    assert (tiles[0] is None) == (tiles[1] is None)
    if tiles[0] is not None:
        exactly(*tiles)


@pytest.mark.parametrize("t", range(5))
def test_a_step_after_a_cache_sees_what_its_row_saw(t):
    whole = (causal() & window(2)).tile(range(5), range(5), CPU)
    step = (causal(offset=t) & window(2, offset=t)).tile(range(1), range(t + 1), CPU)
    row = whole[:, :, [t], : t + 1]
    exactly(torch.ones_like(row) if step is None else step, row)


def test_causal_by_hand():
    exactly(
        causal().tile(range(3), range(4), CPU)[0, 0], torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]).bool()
    )
    exactly(causal(1).tile(range(2), range(4), CPU)[0, 0], torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]]).bool())


def test_window_by_hand():
    exactly(
        window(1).tile(range(3), range(4), CPU)[0, 0], torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]]).bool()
    )


def test_padding_of_both_by_hand():
    found = padding_both([2, 0], 3).tile(range(3), range(3), CPU)
    exactly(found[0, 0], torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 0]]).bool())
    assert not found[1].any()


def test_padding_takes_a_list_or_a_tensor():
    for lengths in ([2, 3], (2, 3), torch.tensor([2, 3]), torch.tensor([2, 3], dtype=torch.int32)):
        exactly(padding(lengths, 3).tile(range(1), range(3), CPU)[:, 0, 0], torch.tensor([[1, 1, 0], [1, 1, 1]]).bool())


def test_three_axes_are_batch_queries_and_keys():
    exactly(allow(torch.eye(3, dtype=torch.bool).expand(2, 3, 3)).allowed, torch.eye(3).bool().expand(2, 1, 3, 3))


def test_where_all_may_look_there_is_no_tensor():
    assert Mask().tile(range(5), range(7), CPU) is None
    assert causal(offset=6).tile(range(5), range(7), CPU) is None
    assert causal().tile(range(3, 5), range(4), CPU) is None


BAD_LENGTHS = [
    (torch.tensor([3, 9]), r"lengths must lie in 0 … 7 \(the number of keys\), got 9"),
    (torch.tensor([[3, 8], [1, 2]]), r"lengths must lie in 0 … 7 .*, got 8"),
    (torch.tensor([3, -2]), r"lengths must lie in 0 … 7 .*, got -2"),
    ([3, 9], r"lengths must lie in 0 … 7 .*, got 9"),
    (torch.tensor([3.0, float("nan")]), "lengths must be whole numbers, got nan"),
    (torch.tensor([3.0, 2.5]), r"lengths must be whole numbers, got torch\.float32"),
    (torch.tensor([3, 2], dtype=torch.float64), r"lengths must be whole numbers, got torch\.float64"),
    (torch.tensor([True, False]), r"lengths must be whole numbers, got torch\.bool"),
    (torch.tensor([1j]), r"lengths must be whole numbers, got torch\.complex64"),
    (torch.tensor(3), r"lengths must be \(B\) or \(B, Q\), got shape \(\)"),
    (torch.tensor([[[3]]]), r"lengths must be \(B\) or \(B, Q\), got shape \(1, 1, 1\)"),
]


@pytest.mark.parametrize(("lengths", "said"), BAD_LENGTHS, ids=range(len(BAD_LENGTHS)))
@pytest.mark.parametrize("make", [padding, padding_both])
def test_lengths_that_count_no_keys_are_refused(make, lengths, said):
    with pytest.raises(ValueError, match=said):
        make(lengths, 7)


def test_lengths_per_query_are_refused_where_a_sequence_looks_at_itself():
    with pytest.raises(ValueError, match=r"one number for each sequence here, got shape \(2, 3\)"):
        padding_both(torch.ones(2, 3, dtype=torch.long), 7)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: causal(-1), "offset must be 0 or more keys before the first query, got -1"),
        (lambda: window(-3), "width and offset must be 0 or more, got -3 and 0"),
        (lambda: window(3, -2), "width and offset must be 0 or more, got 3 and -2"),
    ],
)
def test_places_before_the_beginning_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8], ids=str)
def test_a_mask_that_is_not_boolean_is_refused(dtype):
    with pytest.raises(ValueError, match=f"must be boolean, true where looking is allowed, got {dtype}"):
        allow(torch.ones(5, 7, dtype=dtype))


@pytest.mark.parametrize("shape", [(), (7,), (1, 2, 3, 5, 7)], ids=str)
def test_a_mask_with_other_axes_is_refused(shape):
    said = rf"must be \(Q, K\), \(B, Q, K\) or \(B, H, Q, K\), got shape \({', '.join(map(str, shape))},?\)"
    with pytest.raises(ValueError, match=said):
        allow(torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (causal(3), window(2), "two masks must agree on the offset, got 3 and 0"),
        (causal(3), causal(4), "two masks must agree on the offset, got 3 and 4"),
        (padding([2], 5), padding([2], 7), "two masks must agree on n_keys, got 5 and 7"),
    ],
)
def test_masks_that_contradict_each_other_are_refused(one, other, said):
    with pytest.raises(ValueError, match=said):
        one & other


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (padding([2, 3], 5), "the mask's lengths were made for 5 keys, got 7 keys"),
        (padding([2, 3, 4], 7), r"key_lengths must have shape \(2,\) or \(2, 5\), got \(3,\)"),
        (Mask(query_lengths=torch.tensor([1, 2, 3])), r"query_lengths must have shape \(2,\) or \(2, 5\), got \(3,\)"),
        (
            allow(torch.ones(7, 5, dtype=torch.bool)),
            r"broadcast to \(B, H, Q, K\) = \(2, 3, 5, 7\), got shape \(1, 1, 7, 5\)",
        ),
    ],
    ids=range(4),
)
def test_a_mask_made_for_other_sizes_is_refused(mask, said):
    with pytest.raises(ValueError, match=said):
        mask.check(2, 3, 5, 7)
