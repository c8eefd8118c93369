"""Heatmaps as in Dive into Deep Learning: the given numbers, in one scale."""

import numpy as np
import pytest
import torch
from matplotlib.text import Text

import regard

MATRICES = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def images(figure):
    return [axes.images[0] for axes in figure.axes[:-1]]


@pytest.mark.parametrize("form", [lambda x: x, torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.requires_grad_])
def test_the_given_numbers_are_drawn_in_their_places(displayed, form):
    regard.show_heatmaps(form(MATRICES.clone()), "Keys", "Queries")
    (figure,) = displayed
    drawn = [image.get_array() for image in images(figure)]
    np.testing.assert_array_equal(np.stack(drawn), MATRICES.flatten(0, 1).numpy())


def test_all_share_one_scale_which_the_bar_shows(displayed):
    regard.show_heatmaps(MATRICES, "Keys", "Queries")
    (figure,) = displayed
    ends = (float(MATRICES.min()), float(MATRICES.max()))
    assert {image.get_clim() for image in images(figure)} == {ends}
    assert figure.axes[-1].get_ylim() == pytest.approx(ends)


def test_words_stand_once_where_they_belong(displayed):
    regard.show_heatmaps(MATRICES, "Keys", "Queries", titles=["one", "two", "three"], figsize=(7, 4), cmap="Blues")
    (figure,) = displayed
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert [texts.count(word) for word in ("Keys", "Queries", "one", "two", "three")] == [3, 2, 1, 1, 1]
    assert tuple(figure.get_size_inches()) == (7, 4)
    assert {image.get_cmap().name for image in images(figure)} == {"Blues"}


def test_what_is_not_finite_is_left_out_and_moves_no_scale(displayed):
    masked = MATRICES.clone()
    masked[0, 0, 0, 0], masked[1, 2, 4, 6] = -torch.inf, torch.nan
    regard.show_heatmaps(masked, "Keys", "Queries")
    drawn = np.ma.stack([image.get_array() for image in images(displayed[0])])
    assert drawn.mask.sum() == 2 and drawn.mask[0, 0, 0] and drawn.mask[5, 4, 6]
    assert images(displayed[0])[0].get_clim() == (drawn.min(), drawn.max())


@pytest.mark.parametrize("cmap", ["RdBu", "coolwarm_r"])
def test_the_middle_of_two_arms_is_zero(displayed, cmap):
    regard.show_heatmaps(MATRICES + 1, "Keys", "Queries", cmap=cmap)
    low, high = images(displayed[0])[0].get_clim()
    assert low == -high == -float((MATRICES + 1).abs().max())


@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7), (2, 3, 0, 7), (1, 2, 3, 5, 7)])
def test_other_shapes_are_refused(displayed, shape):
    with pytest.raises(ValueError, match=rf"\(rows, columns, queries, keys\), got \({', '.join(map(str, shape))}\)"):
        regard.show_heatmaps(torch.ones(shape), "Keys", "Queries")
    assert not displayed


def test_other_words_are_refused(displayed, without):
    with pytest.raises(ValueError, match="titles must be as many as the columns, got 2 and 3"):
        regard.show_heatmaps(MATRICES, "Keys", "Queries", titles=["one", "two"])
    with pytest.raises(ValueError, match=r"cmap must be one of matplotlib's.* got 'Rot'"):
        regard.show_heatmaps(MATRICES, "Keys", "Queries", cmap="Rot")
    without("matplotlib")
    with pytest.raises(ValueError, match=r"heatmaps need matplotlib.*pip install 'regard\[notebook\]'"):
        regard.show_heatmaps(MATRICES, "Keys", "Queries")
