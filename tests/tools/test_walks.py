"""The walks of docs/architecture.md: short, and of functions that are really called."""

import pytest

from tools.walks import LIMITS, WALKS, listed, missing


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_is_short(name):
    assert 10 <= len(listed(name)) <= LIMITS[name]


def test_a_translation_passes_through_the_listed_functions():
    walk = WALKS["translate"]()
    assert missing("translate", walk) == []
    assert len(walk) <= LIMITS["translate"], "leaves included"
