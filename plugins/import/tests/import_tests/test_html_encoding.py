"""Labels of encodings in web pages have the same meaning as in browsers."""

import pytest

from taugate_import.html import decode_page


def page(label: str, text: str, encoding: str) -> bytes:
    return f"<html><head><meta charset='{label}'></head><body>".encode() + text.encode(encoding)


@pytest.mark.parametrize(
    ("label", "text", "encoding"),
    [
        ("gb2312", "水泵镕", "gbk"),
        ("gbk", "㐀", "gb18030"),
        ("shift_jis", "①番の弁", "cp932"),
        ("x-sjis", "ポンプ", "cp932"),
        ("euc-kr", "똠방각하", "cp949"),
        ("ks_c_5601-1987", "펌프", "cp949"),
        ("big5", "香港嘅泵", "big5hkscs"),
        ("iso-8859-1", "“5 €” – that’s", "cp1252"),
        ("us-ascii", "Größe", "cp1252"),
        ("iso-8859-9", "şıĞ’", "cp1254"),
        ("iso-8859-8-i", "משאבה", "iso8859-8"),
        ("tis-620", "ปั๊ม", "cp874"),
        ("euc-jp", "ポンプ", "euc_jp"),
        ("iso-2022-jp", "ポンプの弁", "iso2022_jp"),
        ("iso-2022-kr", "펌프", "iso2022_kr"),
        ("utf-16", "Größe", "utf-8"),
        ("x-user-defined", "Größe", "cp1252"),
        ("koi8-u", "насос їх", "koi8-u"),
        ("macintosh", "Größe", "mac-roman"),
        ("ibm850", "Größe", "cp850"),
    ],
)
def test_encoding_labels_follow_the_standard(label: str, text: str, encoding: str) -> None:
    decoded = decode_page(page(label, text, encoding))
    assert decoded.text.endswith(text) and decoded.notes == ()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"<?xml version='1.0' encoding='iso-8859-2'?><p>" + "pompę".encode("iso8859-2"), "pompę"),
        (b"<meta http-equiv=Content-Type content='text/html; charset=koi8-r'>" + "насос".encode("koi8-r"), "насос"),
        (b"<!-- <meta charset=utf-16> --><meta charset='windows-1251'>" + "насос".encode("cp1251"), "насос"),
        (b"<meta name=description content='charset=koi8-r'><meta charset=utf-8>" + "Größe".encode(), "Größe"),
        ("\ufeff<meta charset=iso-8859-1>Größe".encode(), "Größe"),
        ("<meta charset=utf-8>Größe".encode("utf-16"), "Größe"),
        (page("euc-jp", "", "ascii") + b"\xad\xa1", "①"),
        (page("gbk", "", "ascii") + b"\x80", "€"),
        (page("big5", "", "ascii") + b"\xa3\xe1", "€"),
    ],
)  # fmt: skip
def test_byte_order_mark_overrides_label(raw: bytes, text: str) -> None:
    decoded = decode_page(raw)
    assert decoded.text.endswith(text) and not decoded.text.startswith("\ufeff") and decoded.notes == ()


@pytest.mark.parametrize(
    ("raw", "text", "note"),
    [
        ("<p>Die Größe der Tür".encode("cp1252"), "Größe der Tür", "is read as windows-1252"),
        ("<p>насос начинает работать".encode("cp1251"), "насос начинает", "is read as windows-1251"),
        (page("us-ascii", "in the café", "utf-8"), "café", "is labelled as us-ascii but read as utf-8"),
        (page("utf-8", "Die Größe der Tür", "cp1252"), "Größe", "is labelled as utf-8 but read as windows-1252"),
        (page("utf-8", "Größe € Tür", "utf-8") + b" caf\xe9 \xe2\x80", "Größe € Tür café \ufffd",
         "is read as utf-8, and invalid bytes as windows-1252"),
    ],
)  # fmt: skip
def test_guessed_encoding_is_noted(raw: bytes, text: str, note: str) -> None:
    decoded = decode_page(raw)
    assert text in decoded.text and decoded.notes == (note,)


def test_invalid_byte_costs_one_character() -> None:
    for label, encoding in (("gb2312", "gbk"), ("shift_jis", "cp932"), ("euc-kr", "cp949"), ("big5", "big5")):
        raw = page(label, "<p>", "ascii") + b"\xff</p><p>" + "水水".encode(encoding) + b"</p>"
        text = decode_page(raw).text
        assert "</p><p>水水</p>" in text and "\ufffd" in text
