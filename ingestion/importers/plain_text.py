"""Plain text: bytes of any usual encoding to paragraphs."""

import re

from charset_normalizer import from_bytes

from taugate.ingestion.parsed import ParsedDocument, TextBuilder, UnreadableFile

_CONTROL = re.compile("[\x00-\x08\x0e-\x1f]")
_SAMPLE = 1 << 18  # what the encoding is guessed from


def decode_text(raw: bytes) -> str:
    """Decode the bytes of a text file: UTF-8, UTF-16 or UTF-32 with a byte order mark, else the most likely encoding.

    Returns the text with line feeds as line breaks. Raises UnreadableFile where the bytes are no text.
    """
    for mark, encoding in (
        (b"\xff\xfe\x00\x00", "utf-32"),
        (b"\x00\x00\xfe\xff", "utf-32"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if raw.startswith(mark):
            return _checked(raw.decode(encoding, "replace"))
    try:
        return _checked(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        guess = None if b"\x00" in raw[:_SAMPLE] else from_bytes(raw[:_SAMPLE]).best()
    if guess is None:
        raise UnreadableFile("is not text")
    return _checked(raw.decode(guess.encoding, "replace"))


def _checked(text: str) -> str:
    """Return a text with line feeds alone; one with many control characters is binary."""
    if len(_CONTROL.findall(text[:_SAMPLE])) > len(text[:_SAMPLE]) // 100:
        raise UnreadableFile("is not text")
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def parse_plain_text(text: str) -> ParsedDocument:
    """Divide a text into paragraphs at its empty lines. text: with line feeds as line breaks."""
    builder = TextBuilder()
    for paragraph in re.split(r"\n[ \t]*\n", text.replace("\f", "\n\n")):
        builder.add(paragraph, "prose")
    return builder.document("")
