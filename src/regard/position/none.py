"""No positions: attention then sees a set, not a sequence."""

from regard.position.contract import Position


class NoPosition(Position):
    """Opens no door."""
