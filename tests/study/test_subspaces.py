"""Subspaces of words and positions: known angles, known shares, and schemes whose answer is certain."""

import math

import pytest
import torch
from torch.testing import assert_close

from regard.study.stream_parts import corrected, explained, group_means, joint_means, pooled
from regard.study.subspaces import (
    SubspaceSettings,
    compare,
    compare_stream,
    compare_tables,
    cosine,
    leading,
    overlap,
    principal_angles,
    random_basis,
    run,
)
from regard.trace.residual import Stream, Tokens
from tests.parts import noise
from tests.study.models import make_pairs, translator_with
from tests.trace.makers import make_model

D = 13
SETTINGS = SubspaceSettings(draws=5, tops=(3,))


def chance():
    return torch.Generator().manual_seed(0)


def basis(*columns):
    return torch.eye(D, dtype=torch.float64)[:, list(columns)]


def turned(degrees):
    """Gives a line at an angle to the first axis."""
    angle = math.radians(degrees)
    return math.cos(angle) * basis(0) + math.sin(angle) * basis(5)


def test_equal_subspaces_have_no_angle_and_orthogonal_ones_a_right_one():
    mixed = basis(0, 1, 2) @ torch.linalg.qr(noise(3, 3, seed=1))[0]
    assert_close(principal_angles(basis(0, 1, 2), mixed), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    assert_close(principal_angles(basis(0, 1), basis(2, 3, 4)), torch.full((2,), 90.0, dtype=torch.float64))


@pytest.mark.parametrize("degrees", [1e-5, 3.0, 30.0, 45.0, 89.0])
def test_a_known_angle_is_measured(degrees):
    found = principal_angles(basis(0, 1), turned(degrees))
    assert_close(found, torch.tensor([degrees], dtype=torch.float64), rtol=1e-8, atol=1e-12)
    both = torch.cat([turned(degrees), basis(1)], dim=1)
    expected = torch.tensor([0.0, degrees], dtype=torch.float64)
    assert_close(principal_angles(both, basis(0, 1)), expected, rtol=1e-8, atol=1e-10)


def test_overlap_is_one_inside_and_k_of_d_by_chance():
    assert overlap(principal_angles(basis(0, 1, 2), basis(1))) == pytest.approx(1.0)
    found = compare("", basis(0, 1, 2, 3), basis(4, 5), 400, chance())
    assert (found.dims, found.width, found.overlap) == ((4, 2), D, pytest.approx(0.0))
    assert found.random_overlap.mean == pytest.approx(4 / D, abs=0.02)
    assert_close(found.angles, torch.full((2,), 90.0, dtype=torch.float64))
    assert bool((found.random_angles[1:] >= found.random_angles[:-1]).all())


def test_random_subspaces_are_orthonormal():
    drawn = random_basis(D, 4, chance())
    assert_close(drawn.T @ drawn, torch.eye(4, dtype=torch.float64))


def test_leading_directions_hold_the_variance():
    scales = torch.tensor([4.0, 2.0, 1.0] + [0.0] * (D - 3), dtype=torch.float64)
    x = torch.linalg.qr(noise(40, D, seed=2) - noise(40, D, seed=2).mean(0))[0] * scales + 5.0
    assert leading(x, top=2).shape == (D, 2)
    assert overlap(principal_angles(leading(x, top=2), basis(0, 1))) == pytest.approx(1.0, abs=1e-9)
    held = [leading(x, share).shape[1] for share in (0.7, 16 / 21, 0.8, 20.5 / 21, 1.0)]
    assert held == [1, 1, 2, 3, 3]
    assert leading(x, top=9).shape == (D, 3)  # there are no more directions
    with pytest.raises(ValueError, match=r"must lie in \(0, 1\], got 1.5"):
        leading(x, 1.5)
    with pytest.raises(ValueError, match="rows that are all alike span no subspace"):
        leading(torch.ones(4, D), 0.9)


def test_groups_explain_what_was_planted_in_them():
    groups = torch.arange(6).repeat(200)
    x = torch.stack([groups.double(), noise(1200, seed=3), groups + 2 * noise(1200, seed=4), torch.ones(1200)], dim=1)
    eta = explained(x, groups)
    between = float(torch.arange(6).double().var(correction=0))
    expected = torch.tensor([1.0, 0.0, between / (between + 4), 0.0], dtype=torch.float64)
    assert_close(eta, expected, atol=0.03, rtol=0)
    assert float(eta[0]) == pytest.approx(1.0)
    many = torch.arange(300).repeat(4)
    raw = explained(noise(1200, 50, seed=5), many)
    assert float(raw.mean()) == pytest.approx(299 / 1199, abs=0.01)
    assert float(corrected(raw, 1200, 300).mean()) == pytest.approx(0.0, abs=0.01)
    with pytest.raises(ValueError, match="more tokens than groups, got 3 and 3"):
        corrected(raw, 3, 3)


def test_rare_groups_become_one_and_means_are_means():
    labels = torch.tensor([9, 9, 4, 7, 7, 8, 9])
    groups = pooled(labels, 2)
    assert groups.tolist() == [1, 1, 2, 0, 0, 2, 1]
    x = noise(7, 3, seed=6)
    assert_close(group_means(x, groups)[2], (x[2] + x[5]) / 2)
    assert pooled(labels, 1).tolist() == [3, 3, 0, 1, 1, 2, 3]


def test_two_groupings_that_go_together_are_told_apart():
    """Words stand at places of their own; plain means would give to places what words bring."""
    chances = torch.softmax(noise(5, 9, seed=10), dim=1)
    words = torch.arange(5).repeat_interleave(80)
    places = torch.multinomial(chances[words], 1, generator=chance())[:, 0]
    of_words, of_places = noise(5, 3, seed=11), noise(9, 3, seed=12)
    x = of_words[words] + of_places[places]
    found = joint_means(x, words, places, rounds=200)
    for means, planted in zip(found, (of_words, of_places), strict=True):
        assert_close(means - means.mean(0), planted - planted.mean(0))
    plain = group_means(x, words)
    assert float((plain - plain.mean(0) - of_words + of_words.mean(0)).abs().max()) > 0.1


def test_codes_that_are_set_beside_are_orthogonal_exactly():
    table = compare_tables(make_model(scheme="sinusoidal beside").src, 20, SETTINGS, chance())
    for each in table.comparisons:
        assert_close(each.angles, torch.full_like(each.angles, 90.0), atol=1e-9, rtol=0)
        assert each.overlap == pytest.approx(0.0, abs=1e-20)
        assert float(each.random_angles[0]) < 89
    assert table.cosine == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("scheme", ["rotary", "t5", "none"])
def test_a_scheme_without_codes_leaves_the_stream_to_look_at(scheme):
    found = run("random", translator_with(scheme=scheme), make_pairs(60), SETTINGS)
    assert [stack.table for stack in found.stacks] == [None, None]
    assert found.scheme == scheme
    encoder = found.stacks[0]
    assert [point.point for point in encoder.points] == ["embedding", "layer 0", "layer 1"]
    assert abs(encoder.points[0].total) < 0.05  # random letters at random places


def test_position_is_found_where_it_was_put():
    found = run("random", translator_with(scheme="sinusoidal"), make_pairs(60), SETTINGS)
    assert found.stacks[0].table.n_positions == 30
    assert [each.name for each in found.stacks[0].table.comparisons] == ["90%", "top 3"]
    first = found.stacks[0].points[0]
    assert first.total > 0.03
    assert float(first.shares[:2].min()) > 0.2 > float(first.shares[-2:].max())  # the quickest sine and the slowest


def test_features_that_carry_position_are_told_apart():
    places = torch.arange(8).repeat(50)
    x = noise(400, 6, seed=7)
    x[:, 2] = places.double()
    x[:, 4] += places
    tokens = Tokens(torch.randint(4, 9, (400,), generator=chance()), places, torch.arange(50).repeat_interleave(8))
    stream = Stream("encoder", tokens, {(0, "attention"): x}, {}, x)
    first, last = compare_stream(stream, SETTINGS, chance())
    assert torch.equal(first.shares, last.shares)
    assert float(first.shares[2]) == pytest.approx(1.0)
    assert 0.75 < float(first.shares[4]) < 0.9
    assert float(first.shares[[0, 1, 3, 5]].abs().max()) < 0.05
    assert first.beyond_words == pytest.approx(first.total, abs=0.02)  # words stand anywhere here


def test_position_that_words_tell_is_not_counted_beyond_them():
    places = torch.arange(8).repeat(50)
    x = noise(8, 6, seed=13)[places]
    tokens = Tokens(places + 4, places, torch.arange(50).repeat_interleave(8))
    (point, _) = compare_stream(Stream("encoder", tokens, {(0, "attention"): x}, {}, x), SETTINGS, chance())
    assert point.total == pytest.approx(1.0)
    assert point.beyond_words == pytest.approx(0.0, abs=1e-9)


def test_cosines_of_random_vectors_are_one_over_the_root_of_the_width():
    assert cosine(noise(300, 64, seed=8), noise(300, 64, seed=9)) == pytest.approx(1 / 8, rel=0.05)
    assert cosine(noise(30, 5, seed=8), 3 * noise(30, 5, seed=8)) > 0.4


def test_a_text_without_repetition_is_refused():
    words = [letter + letter for letter in "abcdefghij" * 2]
    with pytest.raises(ValueError, match="must have 3 positions and 3 words that occur often, got 2 and"):
        run("random", translator_with(), [(word, word) for word in words], SETTINGS)
