"""XML and subtitles: the visible text, without markup."""

import html
import re

import lxml.etree

from taugate.ingestion.importers.plain_text import decode_text, parse_plain_text
from taugate.ingestion.importers.source_code import parse_code
from taugate.ingestion.importers.word_share import count_words
from taugate.ingestion.parsed import ParsedFile, TextBuilder

_TIMING = re.compile(r"(?m)^(?:\d+[ \t]*\n)?(?:\d+:)?\d+:\d+[.,]\d+[ \t]*-->.*$|\AWEBVTT.*$")


def parse_xml(raw: bytes) -> ParsedFile:
    """Read XML: a paragraph for each element with text, or the file as code if its words are in attributes.

    Raises:
        UnreadableFile: If the bytes are not text.
    """
    try:
        root = lxml.etree.fromstring(raw, lxml.etree.XMLParser(resolve_entities=False, no_network=True))
    except lxml.etree.XMLSyntaxError:
        return parse_code(raw)
    text = " ".join("".join(root.itertext()).split())
    attributes = " ".join(value for element in root.iter("*") for value in element.attrib.values())
    if count_words([text]).total() <= count_words([attributes]).total():
        return parse_code(raw)
    builder = TextBuilder()
    paragraph: list[str] = []
    for event, element in lxml.etree.iterwalk(root, events=("start", "end")):
        if not isinstance(element.tag, str):
            continue
        is_inline = (element.tail is not None and element.tail.strip()) or _is_among_text(element)
        if not is_inline:
            builder.add("".join(paragraph).strip(), "prose")
            paragraph = []
        paragraph.append((element.text if event == "start" else element.tail) or "")
    builder.add("".join(paragraph).strip(), "prose")
    content = lxml.etree.tostring(root, encoding="unicode")
    source_text = html.unescape(re.sub(r"<!--.*?-->|<\?.*?\?>|<[^>]*>", " ", content, flags=re.DOTALL))
    return ParsedFile([builder.document("")], source_text)


def _is_among_text(element: "lxml.etree._Element") -> bool:
    """Return whether an element is part of a sentence: text is beside it, or beside one of its neighbours."""
    parent = element.getparent()
    if parent is None:
        return False
    return bool((parent.text or "").strip()) or any((child.tail or "").strip() for child in parent)


def parse_subtitles(raw: bytes) -> ParsedFile:
    """Read subtitles (.srt, .vtt) without their times.

    Raises:
        UnreadableFile: If the bytes are not text.
    """
    decoded = decode_text(raw)
    named = re.sub(r"(?m)^<v(?:\.[^\s>]*)? +([^>\n]+)>", r"\1: ", _TIMING.sub("", decoded.text))  # who speaks
    spoken = re.sub(r"</?[a-z][^>\n]*>", "", named)
    return ParsedFile([parse_plain_text(spoken)], spoken, decoded.notes)
