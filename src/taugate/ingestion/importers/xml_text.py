"""XML: the text of its elements, without markup."""

import html
import re

import lxml.etree

from taugate.ingestion.importers.source_code import parse_code
from taugate.ingestion.importers.word_share import count_words
from taugate.ingestion.parsed import ParsedFile, TextBuilder

_PARSER = lxml.etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
_MAX_ENTITY = 1000  # characters, as entities that consist of entities may have any length


def parse_xml(raw: bytes) -> ParsedFile:
    """Read XML: a paragraph for each element with text, or the file as code if its words are in attributes.

    Raises:
        UnreadableFile: If the bytes are not text.
    """
    try:
        root = lxml.etree.fromstring(raw, _PARSER)
    except lxml.etree.XMLSyntaxError:
        return parse_code(raw)
    _resolve_entities(root)
    text = " ".join("".join(root.itertext()).split())
    attributes = " ".join(value for element in root.iter("*") for value in element.attrib.values())
    if count_words([text]).total() <= count_words([attributes]).total():
        return parse_code(raw)
    builder = TextBuilder()
    paragraph: list[str] = []
    mixed = {element for element in root.iter() if _has_own_text(element)}
    for event, element in lxml.etree.iterwalk(root, events=("start", "end")):
        is_inline = element.getparent() in mixed
        if not is_inline:
            builder.add("".join(paragraph).strip(), "prose")
            paragraph = []
        paragraph.append((element.text if event == "start" else element.tail) or "")
    builder.add("".join(paragraph).strip(), "prose")
    content = lxml.etree.tostring(root, encoding="unicode")
    source_text = html.unescape(re.sub(r"<[^<>]*>", " ", content))
    return ParsedFile([builder.document("")], source_text)


def _resolve_entities(root: "lxml.etree._Element") -> None:
    """Replace entities by the text that the file defines, or that they have in HTML; no other file is read."""
    definitions = root.getroottree().docinfo.internalDTD
    texts = {f"&{entity.name};": entity.content or "" for entity in (definitions.iterentities() if definitions else ())}
    for entity in root.iter(lxml.etree.Entity):
        text = entity.text
        for _ in range(min(len(texts), 5)):  # as an entity may contain others
            text = re.sub(r"&[\w.-]+;", lambda name: texts.get(name[0]) or name[0], text)[:_MAX_ENTITY]
        entity.tail = html.unescape(re.sub(r"<[^<>]*>", " ", text)) + (entity.tail or "")
    lxml.etree.strip_tags(root, lxml.etree.Entity)


def _has_own_text(element: "lxml.etree._Element") -> bool:
    """Return whether an element has text beside its children, which are then parts of a sentence."""
    return any(text.strip() for text in (element.text or "", *(child.tail or "" for child in element)))
