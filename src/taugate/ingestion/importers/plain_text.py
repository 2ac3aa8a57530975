"""Plain text: bytes of any usual encoding to paragraphs."""

import re
from dataclasses import dataclass

from taugate.ingestion.importers.text_encoding import Encoding, decode, guess_encoding, marked_encoding
from taugate.ingestion.parsed import ParsedDocument, TextBuilder, UnreadableFile

_CONTROL = re.compile("[\x00-\x08\x0e-\x1f]")
_SAMPLE = 1 << 18  # characters that tell text from other bytes


@dataclass(frozen=True, slots=True)
class DecodedText:
    """The bytes of a file as text.

    Attributes:
        text: With line feeds as line breaks.
        notes: What the user has to know about the encoding, as in `ParsedFile`; empty if the file is UTF-8 or names its
            encoding.
    """

    text: str
    notes: tuple[str, ...] = ()


def decode_text(raw: bytes) -> DecodedText:
    """Decode the bytes of a text file: by its byte order mark, as UTF-8, or in the most likely encoding.

    Args:
        raw: The file's bytes.

    Raises:
        UnreadableFile: If the bytes are no text.
    """
    marked = marked_encoding(raw)
    encoding = marked or guess_encoding(raw)
    text = printable_text(decode(raw, encoding.codec))
    return DecodedText(text, () if marked else encoding_notes(raw, encoding))


def encoding_notes(raw: bytes, encoding: Encoding) -> tuple[str, ...]:
    """Return what the user has to know about an encoding that was guessed: its name, or that some bytes are wrong."""
    if encoding.codec != "utf-8":
        return (f"is read as {encoding.name}",)
    try:
        raw.decode()
    except UnicodeDecodeError:
        return ("is read as utf-8, and bytes that are none as windows-1252",)
    return ()


def printable_text(text: str) -> str:
    """Return a text with line feeds as line breaks, and without other control characters.

    Raises:
        UnreadableFile: If there are many of them: then it is not text.
    """
    if len(_CONTROL.findall(text[:_SAMPLE])) > len(text[:_SAMPLE]) // 100:
        raise UnreadableFile("is not text")
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def parse_plain_text(text: str) -> ParsedDocument:
    """Divide a text into paragraphs at its empty lines.

    Args:
        text: With line feeds as line breaks.
    """
    builder = TextBuilder()
    for paragraph in re.split(r"\n[ \t]*\n", text.replace("\f", "\n\n")):
        builder.add(paragraph, "prose")
    return builder.document("")
