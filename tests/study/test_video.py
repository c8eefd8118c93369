"""Clips of moving shapes: they move as they should, and an orbit hides the direction from who has no places."""

import pytest
import torch
from torch.testing import assert_close

from regard.study import video
from regard.study.images import assemble, cut
from regard.study.task import coordinates, make_model, oracle_accuracy, parse_encoding, read
from regard.study.video import (
    AXES,
    CELLS,
    DIRECTIONS,
    PIXELS,
    SETTINGS,
    SIDE,
    make_stills,
    make_task,
    moved,
    orbits,
    roll,
    shape,
    single_clips,
)


def draws(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("n_directions", [4, 8])
def test_a_dot_goes_where_its_label_says_round_the_torus(n_directions):
    dot = torch.zeros(n_directions, 4, PIXELS, PIXELS)
    dot[:, :, 1, PIXELS - 1] = 1.0
    paces = torch.arange(n_directions) // 2 % 2 + 1
    made = moved(dot, torch.arange(n_directions), paces, n_directions)
    for clip, (down, right), pace in zip(made, DIRECTIONS[n_directions].values(), paces.tolist(), strict=True):
        for t, frame in enumerate(clip):
            step = t // pace * SIDE
            place = ((1 + step * down) % PIXELS, (PIXELS - 1 + step * right) % PIXELS)
            assert frame.nonzero().tolist() == [list(place)]


@pytest.mark.parametrize("n_directions", [4, 8])
def test_the_opposite_way_is_half_the_list_further(n_directions):
    ways = list(DIRECTIONS[n_directions].values())
    assert all(ways[(i + n_directions // 2) % n_directions] == (-y, -x) for i, (y, x) in enumerate(ways))


@pytest.mark.parametrize("n_directions", [4, 8])
def test_all_clips_of_an_orbit_have_the_same_patches(n_directions):
    made, labels = orbits(2, n_directions, draws())
    patches = cut(made, SIDE).double().numpy()
    bags = [sorted(map(tuple, clip)) for clip in patches.tolist()]
    for first in (0, 2 * n_directions):
        assert all(bag == bags[first] for bag in bags[first : first + 2 * n_directions])
    assert bags[0] != bags[2 * n_directions]
    assert torch.bincount(labels).tolist() == [4] * n_directions


def test_every_clip_has_a_twin_that_is_played_backwards_and_goes_the_opposite_way():
    made, labels = orbits(3, 4, draws())
    for start in range(0, len(made), 8):
        for number in range(4):
            here, twin = start + number, start + 4 + number
            assert torch.equal(made[twin], made[here].flip(0))
            assert int(labels[twin]) == (int(labels[here]) + 2) % 4


@pytest.mark.parametrize(("n_directions", "none"), [(4, 1 / 4), (8, 1 / 8)])
def test_how_much_each_way_can_know(n_directions, none):
    task = make_task(n_directions, n_train=8, n_orbits=3)
    known = {"none": none, "sinusoidal:frame": none, "grid_2d": 0.5, "grid_3d": 1.0, "learned": 1.0}
    for name, share in known.items():
        assert oracle_accuracy(task.test, coordinates(parse_encoding(name, AXES), AXES, task.test.positions)) == share


def test_a_model_without_positions_says_the_same_to_a_whole_orbit():
    task = make_task(4, n_train=8, n_orbits=2)
    told = parse_encoding("none", AXES)
    model = make_model(task, told, SETTINGS, 0).double().eval()
    test = type(task.test)(task.test.tokens.double(), task.test.positions, task.test.lengths, task.test.labels)
    with torch.no_grad():
        logits = read(model, task, told, test).unflatten(0, (2, 8))
        told = parse_encoding("grid_2d", AXES)
        model = make_model(task, told, SETTINGS, 0).double().eval()
        where = read(model, task, told, test).unflatten(0, (2, 8))
    assert_close(logits, logits[:, :1].expand_as(logits))
    assert_close(where[:, :4], where[:, 4:])  # twins
    assert (where[:, 0] - where[:, 1]).abs().amax() > 1e-3


def test_single_clips_are_balanced_and_all_different():
    made, labels = single_clips(40, 4, draws())
    assert torch.bincount(labels).tolist() == [10] * 4
    assert len({clip.numpy().tobytes() for clip in made}) == 40
    assert torch.equal(single_clips(40, 4, draws())[0], made)


def test_rolling_moves_all_frames_of_a_clip_alike():
    made, _ = single_clips(60, 4, draws())
    rolled = assemble(roll(cut(made, SIDE), draws(3)), (4, CELLS, CELLS))
    found = set()
    for before, after in zip(made, rolled, strict=True):
        moves = [(y, x) for y in range(CELLS) for x in range(CELLS)]
        same = [way for way in moves if torch.equal(before.roll((way[0] * SIDE, way[1] * SIDE), (1, 2)), after)]
        assert len(same) == 1
        found.update(same)
    assert len(found) > CELLS**2 / 2  # by its own chance


def test_shapes_lie_on_the_torus_and_are_of_their_size(monkeypatch):
    y, x = torch.arange(-9.0, 10.0)[None, :, None], torch.arange(-9.0, 10.0)[None, None]
    areas = {name: int(shape(name, y, x, torch.full((1, 1, 1), 3.0)).sum()) for name in ("square", "disc", "diamond")}
    assert areas == {"square": 25, "disc": 29, "diamond": 25}
    cross = shape("cross", y, x, torch.full((1, 1, 1), 3.0))[0]
    assert cross[9, 6:13].all() and cross[6:13, 9].all() and not cross[6, 6]
    monkeypatch.setattr(video, "NOISE", 0.0)
    stills, paces = make_stills(200, draws())
    mass = stills.sum(dim=(2, 3))
    assert float(mass.min()) >= 3 and float(mass.max()) < 40  # a shape across the edge goes on at the other side
    assert torch.equal(mass, mass[:, :1].expand_as(mass))
    assert {*stills.unique().tolist()} == {0.0, 1.0}
    assert paces.unique().tolist() == [1, 2]


@pytest.mark.parametrize(("wrong", "said"), [({"n_directions": 5}, "4 or 8, got 5"), ({"n_train": 0}, "got 0 and 50")])
def test_what_cannot_be_made_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        make_task(**wrong)
