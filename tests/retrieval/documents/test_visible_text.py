"""Texts without visible characters, for every character that Unicode calls invisible."""

import sys

import pytest
import regex

from taugate.retrieval.documents.visible_text import has_visible_text

# Marks and format characters that later Unicode versions added are unassigned for an older Python.
_IGNORABLE = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{White_Space}\p{Cc}]")


def test_unicode_ignorable_character_is_invisible() -> None:
    characters = map(chr, range(sys.maxunicode + 1))
    assert [
        hex(ord(character)) for character in characters if _IGNORABLE.match(character) and has_visible_text(character)
    ] == []


def test_letters_digits_punctuation_are_visible() -> None:
    visible = regex.compile(r"[[\p{L}\p{N}\p{P}\p{S}]--[\p{Default_Ignorable_Code_Point}⠀𝅙𓑁𓑂]]", regex.VERSION1)
    characters = map(chr, range(sys.maxunicode + 1))
    assert [
        hex(ord(character)) for character in characters if visible.match(character) and not has_visible_text(character)
    ] == []


@pytest.mark.parametrize(
    "text",
    ["", " \t\n\x1c", "\u200b\ufeff\u200d", "\0", "\u00ad", "\u3164\u115f\u1160\uffa0", "\u2800", "\ufe0f", "\u0301",
     "\U000e0041\U000e007f", "\u202e\u2066", "\ud800"],
)  # fmt: skip
def test_text_of_invisible_characters_is_invisible(text: str) -> None:
    assert not has_visible_text(text)
    assert has_visible_text(f"{text}a")


@pytest.mark.parametrize("text", ["?", "é", "ก", "한", "🙂", "\ue000", "e\u0301", "…"])
def test_one_visible_character_is_enough(text: str) -> None:
    assert has_visible_text(text)
