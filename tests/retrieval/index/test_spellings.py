"""The terms of a query with the spelling that a user typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.retrieval.index.words import spellings, terms

SPELLINGS = {
    "What does a Building-Permit cost, a PERMIT?": ["What", "does", "a", "Building", "Permit", "cost"],
    "ＦＡＸ fax Straße": ["ＦＡＸ", "Straße"],
    "kit\u00adchen": ["kitchen"],  # a soft hyphen is not shown
    "Foo™ 東京都": ["footm", "東京", "京都"],  # folding joins two words; pairs of characters
    " \n": [],
}


@pytest.mark.parametrize(("text", "expected"), SPELLINGS.items())
def test_spellings_are_those_of_the_text(text: str, expected: list[str]) -> None:
    assert [*spellings(text).values()] == expected


@given(st.text(st.characters() | st.sampled_from("aB éß東ｶﾞ\u00ad\u200b\u0301\u3000™ﬁ"), max_size=30))
def test_every_term_of_any_text_has_one_spelling(text: str) -> None:
    assert {*spellings(text)} == {*terms(text).tolist()}
