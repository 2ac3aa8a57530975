"""Text is broken into lines by the columns that it takes, in any script."""

import pytest

from taugate.cli.terminal.output import printable
from taugate.cli.terminal.wrapping import columns, wrapped

JAPANESE = "屋根の雨漏りは、保険で直せますか。はい、三年以内なら直せます。"
THAI = "หลังคารั่วซ่อมได้ไหม"
HEBREW = "כמה זמן תקפה האחריות על הגג"
PERSIAN = "می\u200cخواهم سقف را تعمیر کنم"


def test_words_are_not_broken() -> None:
    assert wrapped("one  two three", 8) == ["one two", "three"]
    assert wrapped(HEBREW, 12) == ["כמה זמן תקפה", "האחריות על", "הגג"]
    assert wrapped("", 8) == wrapped("  ", 8) == []


@pytest.mark.parametrize("text", [JAPANESE, THAI, HEBREW, PERSIAN, "x" * 50, "中" * 7, "." * 90])
@pytest.mark.parametrize("width", [8, 13, 40])
def test_wrapped_lines_fit_and_keep_letters(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert all(columns(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert not any(line[0] in "、。ั่้" for line in lines)


def test_wide_letter_takes_two_columns() -> None:
    assert [columns(text) for text in ("屋根", "ab", "e\u0301", "ซ่", "می\u200cخ")] == [4, 2, 1, 1, 3]


def test_printable_keeps_spaces_and_joiners() -> None:
    assert printable("12\u00a0m²\u3000屋根 \u2026") == "12 m² 屋根 \u2026"
    assert printable(PERSIAN) == PERSIAN
    assert printable("a\x1b[2J\u202eb\x00") == "a?[2J?b?"
