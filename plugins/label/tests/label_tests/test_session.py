"""The words of the query are marked in a passage, also where a language puts no spaces between words."""

import pytest

from taugate_label.page import segments


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("The Roof leaks; roofs do.", "a roof of the house", ["Roof"]),
        ("Version 29 of it", "is it 29?", ["29"]),
        ("BBR is law in the EU.", "is BBR law?", ["BBR"]),
        ("BBR is a rule, pH a scale", "is bbr about ph", ["BBR", "pH"]),
        ("the A4 page of it", "is it A4 or a5", ["A4"]),
        ("IS IT THE ROOF", "is it the roof", ["ROOF"]),
        ("is it the roof", "IS IT THE ROOF", ["roof"]),
        ("屋根の雨漏りを直します", "雨漏りは直せますか", ["雨漏り"]),
        ("我们保修三年", "保修多久", ["保修"]),
        ("หลังคารั่วมาก", "ซ่อมหลังคา", ["หลังคา"]),
        ("האחריות על הגג", "כמה זמן האחריות", ["האחריות"]),
        ("छत की मरम्मत होगी", "मरम्मत कब", ["मरम्मत"]),
        ("温水と水を使う", "水", ["水", "水"]),
        ("ΑΠΟΘΗΚΗ ΑΘΗΝΑ", "Αθήνα", ["ΑΘΗΝΑ"]),
        ("Kevlar™ here", "kevlar", ["Kevlar"]),
        ("nothing in common", "屋根", []),
    ],
)
def test_query_words_are_marked(text: str, query: str, marked: list[str]) -> None:
    pieces = segments(text, query)
    assert "".join(piece.text for piece in pieces) == text
    assert [piece.text for piece in pieces if piece.matched] == marked
