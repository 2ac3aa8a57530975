"""Texts whose headings have other signs than in Markdown: reStructuredText, Org and AsciiDoc."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

from taugate.ingestion.importers.plain_text import DecodedText, decode_text
from taugate.ingestion.parsed import BlockKind, ParsedFile, TextBuilder

Heading = tuple[int, int, int, str]
"""The first line of a heading, the line after it, its level from 1, and its text."""

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*$")
_ORG_HEADING = re.compile(r"(\*+)[ \t]+(?:(?:TODO|DONE|NEXT|WAITING)[ \t]+)?(.*?)(?:[ \t]+:[\w@#%:]+:)?[ \t]*$")
_ORG_TITLE = re.compile(r"^[ \t]*#\+title:(.*)\n?", re.IGNORECASE | re.MULTILINE)
_ASCIIDOC_HEADING = re.compile(r"(={1,6})[ \t]+(\S.*?)[ \t]*$")


def parse_rst(raw: bytes) -> ParsedFile:
    """Read reStructuredText.

    Raises:
        UnreadableFile: If the bytes are not text.
    """
    return _parse(decode_text(raw), _rst_headings, lambda lines: lines[0][:1].isspace())


def parse_org(raw: bytes) -> ParsedFile:
    """Read a file of Org mode; `#+TITLE:` is its title.

    Raises:
        UnreadableFile: If the bytes are not text.
    """
    decoded = decode_text(raw)
    title = " ".join(" ".join(_ORG_TITLE.findall(decoded.text)).split())
    body = dataclasses.replace(decoded, text=_ORG_TITLE.sub("", decoded.text))
    file = _parse(
        body, _matching(_ORG_HEADING), lambda lines: lines[0].lower().startswith(("#+begin_src", "#+begin_ex"))
    )
    document = dataclasses.replace(file.documents[0], title=title)
    return dataclasses.replace(file, documents=[document], source_text=f"{title}\n{file.source_text}")


def parse_asciidoc(raw: bytes) -> ParsedFile:
    """Read AsciiDoc.

    Raises:
        UnreadableFile: If the bytes are not text.
    """
    return _parse(
        decode_text(raw), _matching(_ASCIIDOC_HEADING), lambda lines: lines[0].startswith(("----", "[source", "...."))
    )


def _parse(
    decoded: DecodedText,
    headings_of: Callable[[Sequence[str]], Iterator[Heading]],
    is_code: Callable[[Sequence[str]], bool],
) -> ParsedFile:
    lines = decoded.text.replace("\f", "\n").split("\n")
    builder = TextBuilder()
    path: list[tuple[int, str]] = []
    position = 0
    for start, end, level, text in [*headings_of(lines), (len(lines), len(lines), 0, "")]:
        names = tuple(name for _, name in path)
        for block in _blocks(lines[position:start]):
            kind: BlockKind = "code" if is_code(block) else "prose"
            builder.add("\n".join(block), kind, names)
        if level:
            path = [(above, name) for above, name in path if above < level] + [(level, text)]
            builder.add("\n".join(lines[start:end]), "heading", tuple(name for _, name in path))
        position = end
    return ParsedFile([builder.document("")], decoded.text, decoded.notes)


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield paragraphs; indented lines, and lines between the marks of a listing, are not divided."""
    block: list[str] = []
    listing = ""
    for line in [*lines, ""]:
        mark = line.strip().lower()
        if listing:
            block.append(line)
            listing = "" if mark.startswith(listing) else listing
            continue
        if mark.startswith("#+begin_"):
            listing = mark.split()[0].replace("begin", "end")
        elif mark in {"----", "...."}:
            listing = mark
        if line.strip() or (block and block[0][:1].isspace()):
            if block and block[0][:1].isspace() and line.strip() and not line[:1].isspace():
                yield block
                block = []
            block.append(line)
        elif block:
            yield block
            block = []
    if any(line.strip() for line in block):
        yield block


def _rst_headings(lines: Sequence[str]) -> Iterator[Heading]:
    """Yield titles above a line of signs; each kind of sign is a level, in the order of first use."""
    levels: dict[str, int] = {}
    last = 0
    for number in range(1, len(lines)):
        title, under = lines[number - 1].rstrip(), lines[number]
        if number - 1 < last or not title or (title[:1].isspace() and number < 2) or not _ADORNMENT.match(under):
            continue
        over = lines[number - 2] if number >= 2 else ""
        has_over = bool(_ADORNMENT.match(over)) and over.rstrip() == under.rstrip() and number - 2 >= last
        is_title = has_over or (not over.strip() and not title[:1].isspace())
        if _ADORNMENT.match(title) or not is_title or len(under.rstrip()) < min(len(title), 4):
            continue
        style = under[0] * (2 if has_over else 1)
        level = levels.setdefault(style, len(levels) + 1)
        last = number + 1
        yield number - 1 - has_over, number + 1, level, " ".join(title.split())


def _matching(heading: re.Pattern[str]) -> Callable[[Sequence[str]], Iterator[Heading]]:
    """Return a function that finds headings of one line.

    Args:
        heading: Pattern of their signs, one per level, and their text.
    """

    def headings(lines: Sequence[str]) -> Iterator[Heading]:
        for number, line in enumerate(lines):
            if match := heading.match(line):
                yield number, number + 1, len(match[1]), match[2]

    return headings
