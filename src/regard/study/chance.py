"""Whether two means differ by more than chance would have it."""

import math

from regard.study.spread import Spread

# Student's t, two-sided at 5 %, for 1 … 10 degrees of freedom; more are judged as 10, a little too strictly.
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def beyond(one: Spread, other: Spread) -> bool | None:
    """Tells whether two means differ by Welch's t-test at 5 %; None where either has one value alone.

    Degrees of freedom are rounded down. Every comparison is by itself: one of twenty that are nothing is a false alarm.
    """
    if min(one.n, other.n) < 2:
        return None
    a, b = one.spread**2 / one.n, other.spread**2 / other.n
    if a + b == 0.0:
        return one.mean != other.mean
    freedom = (a + b) ** 2 / (a**2 / (one.n - 1) + b**2 / (other.n - 1))
    return abs(one.mean - other.mean) > T[min(int(freedom), len(T)) - 1] * math.sqrt(a + b)
