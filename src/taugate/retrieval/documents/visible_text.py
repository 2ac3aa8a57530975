"""Detects texts without visible characters: a query of invisible characters is as blank as one of spaces."""

import unicodedata

# Categories of characters that are invisible by themselves: separators, control and format characters, halves of
# surrogate pairs, and marks, which change the character before them. Private-use and unassigned characters (Co, Cn) may
# be letters of a font or of a later Unicode version, so they count as visible.
_INVISIBLE = {"Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Mn", "Mc", "Me"}
# Letters and symbols whose glyph is empty: Hangul fillers, the blank Braille pattern, the null notehead and the blanks
# of Egyptian hieroglyphs.
_BLANK_GLYPHS = {*"\u115f\u1160\u3164\uffa0\u2800\U0001d159\U00013441\U00013442"}
# Unassigned code points that Unicode reserves for invisible characters (Default_Ignorable_Code_Point).
_RESERVED = (range(0x2065, 0x2066), range(0xFFF0, 0xFFF9), range(0xE0000, 0xE1000))


def has_visible_text(text: str) -> bool:
    """Return whether a text has a visible character; stops at the first one, so most queries cost one look-up."""
    return any(map(_is_visible, text))


def _is_visible(character: str) -> bool:
    if unicodedata.category(character) in _INVISIBLE or character in _BLANK_GLYPHS:
        return False
    return not any(ord(character) in reserved for reserved in _RESERVED)
