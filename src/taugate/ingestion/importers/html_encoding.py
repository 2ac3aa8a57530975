"""Decoding of web pages, by the label that the page gives its encoding.

Labels have the meaning of the WHATWG Encoding Standard: gb2312 is GBK, iso-8859-1 is windows-1252, and utf-16 in a page
whose label could be read is UTF-8. Pages whose bytes contradict their label are decoded by the bytes.
"""

import codecs
import re
from collections.abc import Iterable

import webencodings

from taugate.ingestion.importers.plain_text import DecodedText, encoding_notes, printable_text
from taugate.ingestion.importers.text_encoding import Encoding, decode, guess_encoding, is_utf8, marked_encoding

_HEAD = 1 << 14  # bytes searched for the label; browsers search the first 1,024, and correct the encoding later
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_META = re.compile(rb"<meta\b([^>]*)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(rb"""([^\s"'>/=]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_CHARSET = re.compile(rb"""charset\s*=\s*["']?\s*([^\s"';>]+)""", re.IGNORECASE)
_XML = re.compile(rb"""^\s*<\?xml\b[^>]*?\bencoding\s*=\s*["']([^"']+)""")
_OF_LETTERS = re.compile(r"(cp|iso|mac|koi|hp|tis|euc|big5|gb|hz|johab|utf-7)")
_JAPANESE = re.compile(r"(?:cp|x-windows-)5022\d|iso-2022-jp-(?:1|ms|ext)")  # of mails
_ALWAYS_UTF8 = ("utf-16le", "utf-16be")  # a label that can be read as ASCII is not in UTF-16
_OF_SEVERAL_BYTES = {"gbk", "gb18030", "big5hkscs", "cp932", "cp949", "euc_jp", "iso2022_jp", "iso2022_kr", "hz"}


def decode_page(raw: bytes, label: str = "") -> DecodedText:
    """Decode a page by its byte order mark, its label, or in the most likely encoding.

    Args:
        raw: Content of the page.
        label: Label of its encoding that was sent with the page, and comes before its own.

    Raises:
        UnreadableFile: If the bytes are not text.
    """
    encoding, notes = choose_encoding(raw, [label, _label(raw[:_HEAD]) or ""])
    return DecodedText(printable_text(decode(raw, encoding.codec)), notes)


def choose_encoding(raw: bytes, labels: Iterable[str]) -> tuple[Encoding, tuple[str, ...]]:
    """Return the encoding of a text, and notes on it as in `DecodedText`.

    Args:
        raw: The text.
        labels: Labels of its encoding, of which the first known one counts.
    """
    if marked := marked_encoding(raw):
        return marked, ()
    for label in labels:
        if labelled := _labelled_encoding(label):
            encoding = _corrected(raw, labelled)
            if encoding != labelled:
                return encoding, (f"is labelled as {label} but read as {encoding.name}",)
            return encoding, encoding_notes(raw, encoding) if encoding.codec == "utf-8" else ()
    encoding = guess_encoding(raw)
    return encoding, encoding_notes(raw, encoding)


def _label(head: bytes) -> str | None:
    """Return the label of a page's encoding: that of its XML declaration or of the first `meta` with a label."""
    if declared := _XML.match(head):
        return declared[1].decode("ascii", "replace").strip()
    for meta in _META.finditer(_COMMENT.sub(b"", head)):
        attributes = {name.lower(): b"".join(values) for name, *values in _ATTRIBUTE.findall(meta[1])}
        if charset := attributes.get(b"charset"):
            return charset.decode("ascii", "replace").strip()
        if attributes.get(b"http-equiv", b"").strip().lower() == b"content-type":
            charset_of_content = _CHARSET.search(attributes.get(b"content", b""))
            if charset_of_content:
                return charset_of_content[1].decode("ascii", "replace").strip()
    return None


def _labelled_encoding(label: str) -> Encoding | None:
    """Return the encoding of a label, None if the label is unknown.

    Labels that are not in the standard, such as ibm850, or banned by it, are looked up in Python.
    """
    standard = webencodings.lookup("iso-2022-jp" if _JAPANESE.fullmatch(label.lower()) else label)
    if standard is not None and standard.name in _ALWAYS_UTF8:
        return Encoding("utf-8", "utf-8")
    if standard is not None and standard.name == "x-user-defined":
        return Encoding("cp1252", "windows-1252")
    if standard is not None and standard.name != "replacement":
        codec = "gb18030" if standard.name == "gbk" else standard.codec_info.name
        return Encoding(codec, standard.name)
    try:
        codec = codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    return Encoding(codec, label.lower()) if _OF_LETTERS.match(codec) else None


def _corrected(raw: bytes, labelled: Encoding) -> Encoding:
    """Return the encoding of a page: the labelled one unless the bytes contradict it.

    A page that is UTF-8 throughout is in no other encoding, and a page with mostly invalid bytes is not UTF-8.
    """
    has_escapes = b"\x1b$" in raw
    without = labelled.codec in {"utf-8", "cp1252"} and has_escapes and raw.isascii()
    if b"\x00" in raw or without or (labelled.codec == "iso2022_jp" and not has_escapes and not raw.isascii()):
        return guess_encoding(raw)
    if raw.isascii() and labelled.codec not in {"iso2022_jp", "iso2022_kr", "hz"}:
        return Encoding("utf-8", "utf-8") if labelled.codec == "utf-8" else labelled
    if labelled.codec == "utf-8":
        return labelled if is_utf8(raw) else guess_encoding(raw)
    try:
        raw.decode()
    except UnicodeDecodeError:
        return labelled
    if raw.isascii() or (labelled.codec in _OF_SEVERAL_BYTES and "\ufffd" not in decode(raw, labelled.codec)):
        return labelled
    return Encoding("utf-8", "utf-8")
