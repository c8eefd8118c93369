"""What is to be copied: addresses and long numbers, as people write them, and not what only looks like one."""

import pytest

import regard
from regard.pipeline.copies import BONUS, LONGEST, copy_constraints, find_copies, lost_copies
from regard.pipeline.glossary import TargetVocabulary
from regard.search.constraint import ConstraintAutomaton


def spellings(text):
    return [each for each, _ in find_copies(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("请访问https://a.de/b?c=d#e了解。", ["https://a.de/b?c=d#e"]),
        ("See (http://a.de/b), www.c.org.", ["http://a.de/b", "www.c.org"]),
        ("写信给a.b+c@d.co.uk。", ["a.b+c@d.co.uk"]),
        ("ftp://x/ 和 HTTP", ["ftp://x/"]),
        ("a@b, x = 3:4, C:\\", []),
    ],
)
def test_addresses_end_where_people_end_them(text, found):
    assert [each for each, bonus in find_copies(text) if bonus is None] == [(one,) for one in found]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("订单号是292954187。", [("292954187", "292,954,187")]),
        ("It costs 3.50, not 1234.5.", [("3.50",), ("1234.5", "1,234.5")]),
        ("5 apples, 12 pears, Article 262", []),
        ("v1.2.3, 10:30:15, 2024-05-01, A4000, 1/200", []),
        ("在2024年", [("2024", "2,024")]),
        ("https://a.de/12345", [("https://a.de/12345",)]),
        ("٣٤٥", []),
        ("1" * 30, [("1" * 30,)]),
    ],
)
def test_numbers_of_four_digits_and_decimals_are_copied(text, found):
    assert spellings(text) == found


def test_a_very_long_address_is_left_to_the_model():
    assert spellings("http://" + "a" * LONGEST) == []


def test_every_copy_counts_once():
    assert lost_copies("see a@b.de and a@b.de", "siehe a@b.de") == ["a@b.de"]
    assert lost_copies("see a@b.de and a@b.de", "a@b.de, a@b.de") == []
    assert lost_copies("12345 or 12345", "12,345 or 12345") == []
    assert lost_copies("", "anything") == []


@pytest.mark.parametrize("name", ["zh-en", "en-zh"])
def test_what_is_written_meets_the_constraint_and_what_is_cut_short_does_not(name):
    tokenizer = regard.load(name).tokenizer
    (address, number) = copy_constraints("http://www.wwa.de/ab 90210", TargetVocabulary(tokenizer))
    assert address.bonus is None and number.bonus == BONUS
    for constraint, good, bad in (
        (address, "http://www.wwa.de/ab", "http://www.wwa.de/abc"),
        (number, "90,210", "902105"),
    ):
        for text, met in ((f"({good})", True), (good, True), (f"({bad})", False)):
            assert ConstraintAutomaton([constraint]).is_met(tokenizer.encode(text, "tgt")) == met, text
