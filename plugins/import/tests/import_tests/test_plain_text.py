"""Plain text in encodings in use: decoded exactly, with a note on the guess."""

import random

import pytest

from taugate.data.parsed import UnreadableFile
from taugate_import.plain_text import decode_text, parse_plain_text
from taugate_import.word_share import share_kept

FINNISH = (
    "Pumppu käynnistyy, kun paine laskee alle kahden baarin.\nSoita päivystäjälle illalla, jos varoitusvalo palaa."
)
SPANISH = "La bomba arranca cuando la presión baja de dos bares.\nCambie la junta cada treinta días, también en otoño."
POLISH = "Pompa włącza się, gdy ciśnienie spada poniżej dwóch barów.\nZawór należy zamknąć przed zimą."
RUSSIAN = "Насос включается, когда давление падает ниже двух бар.\nПозвоните дежурному вечером."
JAPANESE = "圧力が二バールを下回るとポンプが始動します。\n秋の前に弁を閉じてください。"
CHINESE = "当压力低于两巴时,水泵启动。\n秋天之前请关闭阀门。"
KOREAN = "압력이 두 바 아래로 떨어지면 펌프가 작동합니다.\n가을 전에 밸브를 잠그십시오."
GREEK = "Η αντλία ξεκινά όταν η πίεση πέσει κάτω από δύο μπαρ.\nΚλείστε τη βαλβίδα πριν από το φθινόπωρο."


@pytest.mark.parametrize(
    ("text", "encoding", "name"),
    [
        (FINNISH, "cp1252", "windows-1252"),
        (SPANISH, "cp1252", "windows-1252"),
        ("The pump’s price is “5 €” – and that’s all.", "cp1252", "windows-1252"),
        ("Le café coûte 5 €, où est le garçon ?", "iso8859-15", "iso-8859-15"),
        ("A room at 20 °C", "cp1252", "windows-1252"),
        (FINNISH, "cp850", "ibm437"),
        (SPANISH, "mac-roman", "macintosh"),
        (POLISH, "cp1250", "windows-1250"),
        (POLISH, "iso8859-2", "iso-8859-2"),
        (POLISH, "cp852", "ibm852"),
        (RUSSIAN, "cp1251", "windows-1251"),
        (RUSSIAN, "koi8-r", "koi8-r"),
        (RUSSIAN, "cp866", "ibm866"),
        (RUSSIAN, "iso8859-5", "iso-8859-5"),
        (GREEK, "cp1253", "windows-1253"),
        (JAPANESE, "cp932", "shift_jis"),
        (JAPANESE, "euc_jp", "euc-jp"),
        (JAPANESE, "iso2022_jp", "iso-2022-jp"),
        (CHINESE, "gb18030", "gb18030"),
        (KOREAN, "cp949", "euc-kr"),
        (KOREAN, "iso2022_kr", "iso-2022-kr"),
        (FINNISH, "utf-16-le", "utf-16le"),
        (RUSSIAN, "utf-16-be", "utf-16be"),
        (JAPANESE, "utf-32-le", "utf-32le"),
    ],
)
def test_legacy_encoding_decoded_and_noted(text: str, encoding: str, name: str) -> None:
    decoded = decode_text(text.encode(encoding))
    assert decoded.text == text and decoded.notes == (f"is read as {name}",)


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_marked_encoding_gives_no_note(encoding: str) -> None:
    text = "The pump starts." if encoding == "ascii" else FINNISH
    decoded = decode_text(text.encode(encoding))
    assert decoded.text == text and decoded.notes == ()


def test_utf8_with_few_invalid_bytes_is_utf8() -> None:
    decoded = decode_text(f"{FINNISH}\n{SPANISH}".encode() + b"\nM\xfcller sagt \x93ja\x94. \xe2\x82")
    assert decoded.text == f"{FINNISH}\n{SPANISH}\nMüller sagt “ja”. \ufffd"
    assert decoded.notes == ("is read as utf-8, and invalid bytes as windows-1252",)


def test_late_byte_decides_the_encoding() -> None:
    text = "The pump starts.\n" * 40_000 + FINNISH
    assert decode_text(text.encode("cp1252")).text == text


@pytest.mark.parametrize("raw", [bytes(range(256)) * 20, b"\x7fELF" + bytes(300), b"PK\x03\x04" + bytes(range(40)) * 9])
def test_binary_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(UnreadableFile, match="is not text"):
        decode_text(raw)


def test_damaged_texts_lose_no_words() -> None:
    sources = [FINNISH.encode("cp1252"), RUSSIAN.encode("koi8-r"), JAPANESE.encode("cp932"), POLISH.encode()]
    for seed in range(200):
        rng = random.Random(seed)  # noqa: S311 (no secret is made of it)
        raw = bytearray(b"\n\n".join([rng.choice(sources)] * 3))
        for _ in range(rng.randrange(1, 8)):
            raw[rng.randrange(len(raw))] = rng.randrange(32, 256)
        decoded = decode_text(bytes(raw[: rng.randrange(len(raw) // 2, len(raw))]))
        assert share_kept(decoded.text, [parse_plain_text(decoded.text)]) == 1
