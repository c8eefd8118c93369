"""What a person would see in a figure: its words, and whether they stand in each other's way."""

import itertools

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from regard.plot.style import style

DPI = 144


def drawn_texts(figure):
    """Gives each visible text with the corners of its rectangle, in inches from the lower left corner."""
    with style():
        figure.set_dpi(DPI)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
        return [(text.get_text(), corners(text, canvas.get_renderer()) / DPI) for text in texts]


def keys(figure):
    """Gives the rectangle of each key of colours, which words must not cover either."""
    return [("a key", square(axes.get_window_extent()) / DPI) for axes in figure.axes[1:]]


def corners(text, renderer):
    """Gives the rectangle itself for a slanted text, where matplotlib gives the upright one around it."""
    if text.get_rotation_mode() != "anchor":
        return square(text.get_window_extent(renderer))
    degrees = text.get_rotation()
    text.set_rotation(0)
    level = square(text.get_window_extent(renderer))
    text.set_rotation(degrees)
    anchor = text.get_transform().transform(text.get_position())
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return (level - anchor) @ np.array([[c, s], [-s, c]]) + anchor


def square(box):
    return np.array([[box.x0, box.y0], [box.x1, box.y0], [box.x1, box.y1], [box.x0, box.y1]])


def collisions(texts, slack=0.004):
    """Gives the pairs of texts of which one covers more than a hair's breadth of the other."""
    low = np.array([rectangle.min(0) for _, rectangle in texts]) + slack
    high = np.array([rectangle.max(0) for _, rectangle in texts]) - slack
    near = (low[:, None] < high).all(2) & (low < high[:, None]).all(2)
    pairs = [(i, j) for i, j in itertools.combinations(range(len(texts)), 2) if near[i, j]]
    return [(texts[i][0], texts[j][0]) for i, j in pairs if not apart(texts[i][1], texts[j][1], slack)]


def apart(one, other, slack):
    """Tells whether a line parallel to a side lies between two rectangles."""
    for rectangle in (one, other):
        for side in (rectangle[1] - rectangle[0], rectangle[2] - rectangle[1]):
            across = np.array([-side[1], side[0]]) / np.linalg.norm(side)
            a, b = one @ across, other @ across
            if a.max() - slack <= b.min() or b.max() - slack <= a.min():
                return True
    return False


def words_in(figure):
    return [text.get_text() for text in figure.findobj(Text)]
