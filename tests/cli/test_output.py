"""Lines and tables for people, and untrusted text without control characters."""

import pytest

from taugate.cli.judging import terminal
from taugate.cli.terminal.output import aligned, printable

JAPANESE = "屋根の雨漏りは、保険で直せますか。はい、三年以内なら直せます。"
THAI = "หลังคารั่วซ่อมได้ไหม"
HEBREW = "כמה זמן תקפה האחריות על הגג"
PERSIAN = "می\u200cخواهم سقف را تعمیر کنم"


def test_printable_keeps_spaces_and_joiners() -> None:
    assert printable("12\u00a0m²\u3000屋根 \u2026") == "12 m² 屋根 \u2026"
    assert printable(PERSIAN) == PERSIAN
    assert printable("a\x1b[2J\u202eb\x00") == "a?[2J?b?"


def test_table_columns_are_aligned() -> None:
    assert aligned([("a", "1", ""), ("long", "22", "x")], right=(1,)) == ["a      1", "long  22  x"]


@pytest.mark.parametrize("text", [JAPANESE, THAI, HEBREW, PERSIAN, "x" * 50, "." * 90])
def test_wrapped_passage_keeps_letters(text: str) -> None:
    lines = terminal.wrapped(text, 13)
    assert len(lines) > 1
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(line[0] not in "ั่้" for line in lines), "no mark is parted from its letter"


def test_passage_is_left_to_terminal_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "find_spec", lambda name: None)
    assert terminal.wrapped(f"{JAPANESE}\n\n\x1b[1mbold", 13) == [JAPANESE, "", "?[1mbold"]
