"""Lines and tables for people, and untrusted text without control characters."""

from taugate.cli.terminal.output import aligned, printable

PERSIAN = "می\u200cخواهم سقف را تعمیر کنم"


def test_printable_keeps_spaces_and_joiners() -> None:
    assert printable("12\u00a0m²\u3000屋根 \u2026") == "12 m² 屋根 \u2026"
    assert printable(PERSIAN) == PERSIAN
    assert printable("a\x1b[2J\u202eb\x00") == "a?[2J?b?"


def test_table_columns_are_aligned() -> None:
    assert aligned([("a", "1", ""), ("long", "22", "x")], right=(1,)) == ["a      1", "long  22  x"]
