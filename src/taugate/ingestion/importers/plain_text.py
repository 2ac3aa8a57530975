"""Plain text: bytes in any common encoding to paragraphs."""

import re
from dataclasses import dataclass

from taugate.ingestion.importers.text_encoding import Encoding, decode, guess_encoding, marked_encoding
from taugate.ingestion.parsed import ParsedDocument, TextBuilder, UnreadableFile

_CONTROL = re.compile("[\x00-\x08\x0e-\x1f]")
_SAMPLE = 1 << 18  # characters that are checked to be text


@dataclass(frozen=True, slots=True)
class DecodedText:
    """The bytes of a file as text.

    Attributes:
        text: Text with line feeds as line breaks.
        notes: Notes on the encoding, as in `ParsedFile`; empty if the file is UTF-8 or names its encoding.
    """

    text: str
    notes: tuple[str, ...] = ()


def decode_text(raw: bytes) -> DecodedText:
    """Decode the bytes of a text file: by its byte order mark, as UTF-8, or in the most likely encoding.

    Raises:
        UnreadableFile: If the bytes are not text.
    """
    marked = marked_encoding(raw)
    encoding = marked or guess_encoding(raw)
    text = printable_text(decode(raw, encoding.codec))
    return DecodedText(text, () if marked else encoding_notes(raw, encoding))


def encoding_notes(raw: bytes, encoding: Encoding) -> tuple[str, ...]:
    """Return the notes on a guessed encoding: its name, or that some bytes are invalid."""
    if encoding.codec != "utf-8":
        return (f"is read as {encoding.name}",)
    try:
        raw.decode()
    except UnicodeDecodeError:
        return ("is read as utf-8, and invalid bytes as windows-1252",)
    return ()


def printable_text(text: str) -> str:
    """Return a text with line feeds as line breaks, and without other control characters.

    Raises:
        UnreadableFile: If it has many control characters, and is therefore not text.
    """
    if len(_CONTROL.findall(text[:_SAMPLE])) > len(text[:_SAMPLE]) // 100:
        raise UnreadableFile("is not text")
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def parse_plain_text(text: str) -> ParsedDocument:
    """Divide a text into paragraphs at its empty lines.

    Args:
        text: Text with line feeds as line breaks.
    """
    builder = TextBuilder()
    for paragraph in re.split(r"\n[ \t]*\n", text.replace("\f", "\n\n")):
        builder.add(paragraph, "prose")
    return builder.document("")
