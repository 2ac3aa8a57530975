"""The terms of a query with the spelling that a user typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.retrieval.index.words import spellings, terms

SPELLINGS = {
    "What does a Building-Permit cost, a PERMIT?": ["What", "does", "a", "Building", "Permit", "cost"],
    "ＦＡＸ fax Straße": ["ＦＡＸ", "Straße"],
    "kit\u00adchen": ["kitchen"],  # a soft hyphen is not shown
    "Foo™ 東京都 水": ["Foo", "東京", "京都", "水"],  # pairs of characters
    "m² Αθήνα": ["m", "2", "m2", "Αθήνα"],
    " \n": [],
}


@pytest.mark.parametrize(("text", "expected"), SPELLINGS.items())
def test_spellings_are_those_of_the_text(text: str, expected: list[str]) -> None:
    assert [*spellings(text).values()] == expected


def test_spellings_follow_the_rule() -> None:
    assert [*spellings("Foo™", rule=2).values()] == ["footm"]


@given(st.text(st.characters() | st.sampled_from("aB éß東ｶﾞ\u00ad\u200b\u0301\u3000™ﬁ"), max_size=30))
def test_every_term_of_any_text_has_one_spelling(text: str) -> None:
    assert {*spellings(text)} == {*terms(text).tolist()}
