"""Plain text: bytes of any usual encoding to paragraphs."""

import re
from dataclasses import dataclass

from charset_normalizer import from_bytes

from taugate.ingestion.parsed import ParsedDocument, TextBuilder, UnreadableFile

_CONTROL = re.compile("[\x00-\x08\x0e-\x1f]")
_SAMPLE = 1 << 18  # what the encoding is guessed from


@dataclass(frozen=True, slots=True)
class DecodedText:
    """The bytes of a file as text.

    text: with line feeds as line breaks. notes: what the user has to know about the encoding, as in `ParsedFile`; empty
    if the file is UTF-8 or names its encoding.
    """

    text: str
    notes: tuple[str, ...] = ()


def decode_text(raw: bytes) -> DecodedText:
    """Decode the bytes of a text file: UTF-8, UTF-16 or UTF-32 with a byte order mark, else the most likely encoding.

    raw: the file's bytes. Raises UnreadableFile if the bytes are no text.
    """
    for mark, encoding in (
        (b"\xff\xfe\x00\x00", "utf-32"),
        (b"\x00\x00\xfe\xff", "utf-32"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if raw.startswith(mark):
            return DecodedText(_checked(raw.decode(encoding, "replace")))
    try:
        return DecodedText(_checked(raw.decode("utf-8-sig")))
    except UnicodeDecodeError:
        guess = None if b"\x00" in raw[:_SAMPLE] else from_bytes(raw[:_SAMPLE]).best()
    if guess is None:
        raise UnreadableFile("is not text")
    return DecodedText(_checked(raw.decode(guess.encoding, "replace")), (f"is read as {guess.encoding}",))


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
