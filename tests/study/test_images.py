"""Digits as patches: cutting, places, the split, small movements, and the control."""

import sys

import pytest
import torch
from torch.testing import assert_close

from regard.study import images as images_study
from regard.study.images import BLANK, QUICK, assemble, augment, cut, grid_positions, load_digits, make_task, split
from regard.study.task import accuracy, make_model, parse_encoding, read


def test_a_patch_holds_the_pixels_of_its_place():
    rows, columns = 6, 8
    picture = torch.arange(rows * columns, dtype=torch.float64).view(1, rows, columns)
    patches, places = cut(picture, 2), grid_positions(3, 4)
    assert patches.shape == (1, 12, 4)
    for patch, (index, row, column) in zip(patches[0], places[0].tolist(), strict=True):
        corner = 2 * row * columns + 2 * column
        assert patch.tolist() == [corner, corner + 1, corner + columns, corner + columns + 1]
        assert index == row * 4 + column


@pytest.mark.parametrize("cells", [(2, 3), (5, 2, 3)])
def test_patches_join_to_the_picture_they_were_cut_from(cells):
    *frames, rows, columns = cells
    pictures = torch.randn(3, *frames, rows * 4, columns * 4, generator=torch.Generator().manual_seed(0))
    patches = cut(pictures, 4)
    assert patches.shape == (3, torch.Size(cells).numel(), 16)
    assert torch.equal(assemble(patches, cells), pictures)


def test_places_in_a_clip_count_frame_row_and_column():
    places = grid_positions(2, 3, 4)[0]
    assert places[0].tolist() == [0, 0, 0, 0] and places[-1].tolist() == [23, 1, 2, 3]
    assert (places[:, 1] * 12 + places[:, 2] * 4 + places[:, 3]).tolist() == list(range(24))


def test_a_side_that_does_not_divide_the_picture_is_refused():
    with pytest.raises(ValueError, match="must divide 8 × 8 pixels, got 3"):
        make_task(3)


def test_every_image_is_in_one_part_and_every_digit_has_its_share():
    _, labels = load_digits()
    parts = split(labels, 0)
    assert torch.cat(parts).sort().values.tolist() == list(range(1797))
    assert [len(part) for part in parts] == [1198, 200, 399]
    for part, share in zip(parts, (2 / 3, 1 / 9, 2 / 9), strict=True):
        counts, whole = (torch.bincount(x, minlength=10).double() for x in (labels[part], labels))
        assert (counts - whole * share).abs().amax() < 1.5
    assert not torch.equal(split(labels, 1)[0], parts[0])


def test_the_task_is_the_images_in_patches():
    images, labels = load_digits()
    task = make_task(4)
    assert task.train.tokens.shape[1:] == (4, 16) and task.classes == tuple("0123456789")
    number = int(split(labels, images_study.SPLIT_SEED)[2][7])
    assert int(task.test.labels[7]) == int(labels[number])
    assert_close(
        assemble(task.test.tokens[7:8], (2, 2))[0] * images_study.DEVIATION + images_study.MEAN, images[number]
    )


def test_blank_paper_stays_blank_and_no_movement_is_none(monkeypatch):
    draws = torch.Generator().manual_seed(0)
    blank = torch.full((3, 16, 4), BLANK)
    assert_close(augment(blank, draws, (4, 4)), blank)
    patches = make_task(2).test.tokens[:5]
    moved = augment(patches, draws, (4, 4))
    assert (moved - patches).abs().amax() > 0.5
    for name in ("SHIFT", "ROTATION", "STRETCH"):
        monkeypatch.setattr(images_study, name, 0.0)
    assert_close(augment(patches, draws, (4, 4)), patches, atol=1e-5, rtol=0)


def test_a_shift_moves_all_pixels_alike(monkeypatch):
    for name, value in (("SHIFT", 1.0), ("ROTATION", 0.0), ("STRETCH", 0.0)):
        monkeypatch.setattr(images_study, name, value)
    dot = torch.full((64, 8, 8), BLANK)
    dot[:, 4, 4] = 1.0
    pictures = assemble(augment(cut(dot, 2), torch.Generator().manual_seed(0), (4, 4)), (4, 4))
    mass = (pictures - BLANK) / (1.0 - BLANK)
    assert_close(mass.sum(dim=(1, 2)), torch.ones(64))
    rows = (mass.sum(dim=2) * torch.arange(8)).sum(dim=1)
    assert float(rows.min()) > 3 - 1e-4 and float(rows.max()) < 5 + 1e-4 and float(rows.std()) > 0.3


def test_without_positions_shuffled_patches_are_the_same_image():
    task = make_task(2)
    told = parse_encoding("none", task.axes)
    model = make_model(task, told, QUICK, 0).eval()
    shuffled = task.test.shuffled(1)
    with torch.no_grad():
        assert_close(read(model, task, told, shuffled), read(model, task, told, task.test), atol=1e-5, rtol=1e-5)
    assert accuracy(model, task, told, shuffled) == accuracy(model, task, told, task.test)
    assert not torch.equal(shuffled.tokens, task.test.tokens)


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ValueError, match=r"needs sklearn, .*: pip install 'regard\[tasks\]'"):
        load_digits()
