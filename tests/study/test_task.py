"""Ways to tell places: names, axes, and what they become."""

import pytest
import torch

from regard.study.task import coordinates, parse_encoding

AXES = ("index", "frame", "row", "column")
PLACES = torch.tensor([[[0, 0, 0, 0], [1, 0, 0, 1], [2, 1, 3, 5]]])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("none", ()),
        ("sinusoidal", ("index",)),
        ("rotary", ("index",)),
        ("grid_2d", ("row", "column")),
        ("grid_3d", ("frame", "row", "column")),
        ("learned:frame", ("frame",)),
        ("grid_2d:frame,nothing", ("frame", "nothing")),
    ],
)
def test_schemes_receive_their_usual_axes_or_those_that_are_named(text, names):
    told = parse_encoding(text, AXES)
    assert told.coordinates == names
    assert told.scheme == text.partition(":")[0]


def test_coordinates_are_columns_and_nothing_is_0():
    assert coordinates(parse_encoding("sinusoidal", AXES), AXES, PLACES).tolist() == [[0, 1, 2]]
    assert coordinates(parse_encoding("grid_2d", AXES), AXES, PLACES).tolist() == [[[0, 0], [0, 1], [3, 5]]]
    assert coordinates(parse_encoding("grid_2d:nothing,frame", AXES), AXES, PLACES).tolist() == [
        [[0, 0], [0, 0], [0, 1]]
    ]
    assert coordinates(parse_encoding("none", AXES), AXES, PLACES).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grid_5d", "unknown position 'grid_5d'"),
        ("grid_2d:row,colum", "unknown axis of 'grid_2d:row,colum' 'colum': did you mean 'column'"),
        ("grid_2d:row", "takes 2 coordinates, got 1 in 'grid_2d:row'"),
    ],
)
def test_what_does_not_fit_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        parse_encoding(text, AXES)


def test_a_scheme_with_more_axes_than_there_are_is_refused():
    with pytest.raises(ValueError, match="'grid_3d' takes 3 coordinates, and here are 2: index, row"):
        parse_encoding("grid_3d", ("index", "row"))
